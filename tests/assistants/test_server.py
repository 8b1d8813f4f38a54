"""The server, asked by the package's own client."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult

from ddpify import cli, schemas
from ddpify.assistants import running, server
from ddpify.assistants.folders import Confines
from ddpify.assistants.running import Ran
from ddpify.assistants.words import TOOLS
from tests.projects import put_fixture
from tests.schemas import published

ROOT = Path(__file__).parents[2]
REFUSED = """import torch

net = torch.nn.Linear(2, 1)
adam = torch.optim.Adam(net.parameters())
for x in arrive():
    net(x).mean().backward()
    adam.step()
"""
T = TypeVar("T")


def ask(folder: Path, question: Callable[[Client], Awaitable[T]]) -> T:
    """What a client hears of a server for this folder."""

    async def asked() -> T:
        async with Client(server.serve([folder])) as client:
            return await question(client)

    return anyio.run(asked)


def call(folder: Path, name: str, **arguments: object) -> CallToolResult:
    return ask(folder, lambda client: client.call_tool(name, arguments))


def document(answer: CallToolResult, command: str) -> dict[str, Any]:
    """What programs are told, which is as the schema says; people and old clients read the same."""
    found: dict[str, Any] = answer.structured_content or {}
    published.validate(command, json.dumps(found))
    assert json.loads(answer.content[-1].text) == found  # type: ignore[union-attr]
    return found


def refusal(answer: CallToolResult) -> str:
    assert answer.is_error
    text: str = answer.content[0].text  # type: ignore[union-attr]
    return text


def test_tools_say_what_they_are_for(tmp_path: Path) -> None:
    async def listed(client: Client) -> tuple[list[Any], str]:
        return (await client.list_tools()).tools, client.instructions or ""

    tools, about = ask(tmp_path, listed)
    assert [tool.name for tool in tools] == list(TOOLS)
    assert "plan (what it means) -> diff" in about
    writing = {tool.name for tool in tools if not tool.annotations.read_only_hint}
    assert writing == {"migrate", "verify"}
    assert {tool.name for tool in tools if tool.annotations.destructive_hint} == {"migrate"}
    for tool in tools:
        schema = json.loads(schemas.text(tool.name))
        assert tool.output_schema == schema.get("$defs", {}).get(tool.name, schema)
        assert tool.output_schema["type"] == tool.input_schema["type"] == "object"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return put_fixture("ladder-02_epochs", tmp_path_factory.mktemp("ladder") / "top").parent


def test_a_project_is_migrated(project: Path) -> None:
    files = {path.name: path.read_bytes() for path in project.iterdir()}
    told = document(call(project, "diff", paths=["02_epochs.py"]), "diff")
    hunks = {change["path"]: change["hunks"] for change in told["changes"]}
    assert hunks["02_epochs.py"]
    assert hunks["ddp_utils.py"] == [], "the text of the helpers is left out"
    assert files == {path.name: path.read_bytes() for path in project.iterdir()}
    answer = call(project, "migrate", paths=["02_epochs.py"])
    assert not answer.is_error
    assert set(hunks) == {Path(one).name for one in document(answer, "migrate")["written"]}
    assert "begin_epoch(" in (project / "02_epochs.py").read_text()
    found = document(call(project, "check"), "check")
    assert (found["findings"], found["programs"][0]["start"]) == ([], "02_epochs.py")


def test_a_refusal_is_an_error_with_instructions(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(REFUSED)
    answer = call(tmp_path, "migrate", paths=["main.py"])
    assert refusal(answer).startswith("ddpify: main.py:5: ")
    (one,) = document(answer, "migrate")["by_hand"]
    assert (one["path"], one["line"], one["text"]) == ("main.py", 5, "for x in arrive():")
    assert one["proof"][-1].startswith("ddpify verify main.py --baseline ")
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


def test_nothing_outside_is_read_or_written(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "main.py").write_text(REFUSED)
    (inner / "link.py").symlink_to(tmp_path / "main.py")
    outside = [
        call(inner, "diff", paths=[given])
        for given in ("../main.py", str(tmp_path / "main.py"), "link.py", "/etc/passwd")
    ]
    outside.append(call(inner, "migrate", paths=["main.py"], output=str(tmp_path / "out")))
    outside.append(call(inner, "verify", script="main.py", baseline="../"))
    for answer in outside:
        assert f"outside of {inner}, which `ddpify mcp` was started for" in refusal(answer)
    (tmp_path / "pyproject.toml").touch()
    told = refusal(call(inner, "check", paths=["."]))
    assert told.startswith(f"ddpify: .: its project begins at {tmp_path}, outside of {inner}")


def test_a_rule_is_explained_and_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    found = document(call(tmp_path, "rule", code="DDP204"), "rule")
    assert (found["code"], len(found["bad"]), len(found["good"])) == ("DDP204", 1, 1)
    assert refusal(call(tmp_path, "rule", code="--all")).startswith(
        "ddpify: there is no rule --all"
    )


# Every argument of every tool.
ASKED: dict[str, dict[str, Any]] = {
    "plan": {"path": "main.py", "nproc": 4, "strategy": "fsdp", "arguments": ["--lr", "1"]},
    "diff": {
        "paths": ["main.py"],
        "strategy": "ddp",
        "batch_size": "per-rank",
        "accept": ["DDP006@main.py:3"],
    },
    "check": {"paths": ["."], "select": ["DDP8"], "ignore": ["D"], "assume_distributed": True},
    "verify": {
        "script": "main.py",
        "arguments": ["--epochs", "1"],
        "nproc": 3,
        "baseline": "HEAD",
        "distributed_only": True,
        "steps": 2,
        "neutralise": ["dropout", "draws"],
        "timeout": 60,
        "every_step": True,
    },
    "rule": {"code": "DDP401"},
}
ASKED["migrate"] = {**ASKED["diff"], "output": "out", "force": True}


@pytest.mark.parametrize("name", TOOLS)
def test_arguments_become_flags(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes them: what it was given is what was asked for."""
    commands: list[list[str]] = []

    async def noted(command: list[str], folder: Path, tell: object) -> Ran:
        commands.append(command)
        return Ran(2, said=bytearray(b"ddpify: no"))

    monkeypatch.setattr(server, "run", noted)
    assert refusal(call(tmp_path, name, **ASKED[name])) == "ddpify: no"
    (command,) = commands
    parsed = cli.cli.commands[name].make_context(name, command[1:]).params
    for key, value in ASKED[name].items():
        if key in ("every_step", "path", "paths", "script", "code", "output"):
            continue
        given = parsed[key]
        assert (list(given) if isinstance(given, tuple) else given) == value
    described = ask(tmp_path, lambda client: client.list_tools()).tools
    (tool,) = (one for one in described if one.name == name)
    assert set(tool.input_schema["properties"]) == set(ASKED[name])


@pytest.mark.parametrize(
    ("name", "key", "given"),
    [
        ("check", "select", ["DDP\0"]),
        ("plan", "arguments", ["\0"]),
        ("rule", "code", "\0"),
        ("rule", "code", "\ud800"),
        ("rule", "code", "D" * 3_000_000),
        ("check", "paths", ["a" * 5000]),
        ("check", "paths", ["\ud800"]),
        ("migrate", "output", "a" * 5000),
        ("verify", "baseline", "a" * 5000),
    ],
)
def test_what_no_command_can_be_given_is_refused(
    name: str, key: str, given: object, tmp_path: Path
) -> None:
    """By a sentence, not by an exception of the method; it is not printed at such length."""
    (tmp_path / "main.py").write_text(REFUSED)
    tools = server.Tools(Confines([tmp_path]))
    needed: dict[str, dict[str, object]] = {
        "plan": {"path": "main.py"},
        "migrate": {"paths": ["main.py"]},
        "verify": {"script": "main.py"},
    }
    asked = {**needed.get(name, {}), key: given}
    told = refusal(anyio.run(lambda: getattr(tools, name)(None, **asked)))
    assert told.startswith("ddpify: the command cannot be started with these arguments: ")
    assert "\n" not in told
    assert len(told) < 200
    told.encode()


def test_an_interrupted_command_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as by Ctrl-C, so that it takes its own processes and copies along."""
    program = """
import sys, time
try:
    print("begun", file=sys.stderr, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    open(sys.argv[2], "w").close()
"""
    monkeypatch.setattr(running, "_START", program)
    monkeypatch.setattr(running, "_BEAT", 0.05)
    heard: list[str] = []

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:

            async def tell(seconds: float, said: str) -> None:
                heard.append(said)
                if said == "begun":
                    scope.cancel()

            await running.run([str(tmp_path / "ended")], tmp_path, tell)

    anyio.run(cancelled)
    assert heard[-1] == "begun"
    assert (tmp_path / "ended").exists()


def test_it_is_served_on_standard_streams(tmp_path: Path) -> None:
    """A module of the project that is named as one of ours does not come in its place."""
    (tmp_path / "click.py").write_text("print('mine')\n")
    (tmp_path / "main.py").write_text("print('mine')\n")

    async def asked() -> CallToolResult:
        start = StdioServerParameters(
            command=sys.executable,
            args=["-m", "ddpify", "mcp", str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
        )
        async with Client(stdio_client(start)) as client:
            return await client.call_tool("check", {})

    assert document(anyio.run(asked), "check")["files"] == 2


def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["mcp", str(tmp_path / "no")]) == cli.FAILED
    assert capsys.readouterr().err == f"ddpify: {tmp_path / 'no'}: no such folder\n"
    for name in [one for one in sys.modules if one.startswith("ddpify.assistants.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert cli.main(["mcp", str(tmp_path)]) == cli.FAILED
    said = capsys.readouterr().err
    assert said == "ddpify: it needs the package mcp, 2 or newer: pip install 'ddpify[mcp]'\n"
