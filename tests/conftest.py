"""What holds for every test: none leaves the process in another state than it found."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from ddpify.report import check_json, json, plan_json, rule, statistics
from ddpify.verify import interpreter
from ddpify.verify.report import json as verify_json
from tests.schemas import published


def _state() -> dict[str, object]:
    """What a test could leave behind and the next one would trip over."""
    distributed = sys.modules.get("torch.distributed")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    group = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return {"environment": environment, "folder": os.getcwd(), "process group": group}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = _state()
    yield
    after = _state()
    changed = [name for name in before if before[name] != after[name]]
    if changed:
        os.chdir(str(before["folder"]))
        os.environ.clear()
        os.environ.update(before["environment"])
        pytest.fail(f"the test left another {', '.join(changed)} behind")


@pytest.fixture(scope="session", autouse=True)
def _an_interpreter_is_started_once() -> Iterator[None]:
    """Each verification has a process to ask; to start one takes seconds, and all are alike."""
    start, end = interpreter._started, interpreter._ended
    known: dict[object, interpreter.Server] = {}

    def started(python: str) -> interpreter.Server:
        key = (python, *_path())
        if key in known and known[key].process.poll() is not None:
            end(known.pop(key))
        if key not in known:
            known[key] = start(python)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_started", started)
        patch.setattr(interpreter, "_ended", lambda _server: None)
        yield
    for server in known.values():
        end(server)


def _path() -> tuple[str | None, ...]:
    return tuple(os.environ.get(name) for name in ("PYTHONPATH", "PATH"))


@pytest.fixture(scope="session", autouse=True)
def _what_programs_read_is_as_its_schema_says() -> Iterator[None]:
    """Every JSON document that any test has a report make is held against the published schema."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, command in _DOCUMENTS:
            patch.setattr(module, name, _validated(getattr(module, name), command))
        yield


_DOCUMENTS: tuple[tuple[ModuleType, str, str], ...] = (
    (check_json, "render", "check"),
    (json, "render", "diff"),
    (plan_json, "render", "plan"),
    (rule, "render_json", "rule"),
    (statistics, "render_json", "statistics"),
    (verify_json, "render", "verify"),
)


def _validated(render: Callable[..., str], command: str) -> Callable[..., str]:
    def rendered(*arguments: object, **named: object) -> str:
        text = render(*arguments, **named)
        published.validate(command, text)
        return text

    return rendered


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several workers: a file's tests share runs, so they stay together unless marked spread."""
    for item in items:
        if not any(map(item.get_closest_marker, ("spread", "xdist_group"))):
            item.add_marker(pytest.mark.xdist_group(item.path.as_posix()))
