"""``[tool.ddpify]`` behind what a pyproject.toml says, of which not a letter changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddpify.settings import SettingsError, nearest_pyproject, parsed_toml, toml

NAME = "pyproject.toml"
_HEAD = "# How ddpify treats this project; flags win over it. All keys: ddpify's README, Use.\n"
_SAYS = {
    "strategy": 'or "fsdp": shard a model that does not fit on one GPU',
    "batch-size": 'or "per-rank": keep the batch size on every rank',
    "launcher": "what migrate writes a start file for: docs/nodes.md",
}


class TableThere(Exception):
    """The settings cannot be written; the message is one sentence for the user."""


def with_table(root: Path, table: Mapping[str, object]) -> tuple[bytes | None, bytes]:
    """The file of the project before (None: there is none) and after.

    Raises:
        TableThere: there are settings already, or the file is one nothing can be added to.
    """
    _check_free(root)
    file = root / NAME
    try:
        before = file.read_bytes() if file.exists() else None
    except OSError as error:
        raise TableThere(f"{file}: cannot be read ({error.strerror})") from error
    text = (before or b"").decode()
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    after = text + gap + _rendered(table).replace("\n", newline)
    if not _only_adds(text, after, table):
        lines = " ".join(_rendered(table).split())
        raise TableThere(f"{file}: nothing can be added behind its last table; add {lines!r}")
    return before, after.encode()


def _check_free(root: Path) -> None:
    try:
        found = nearest_pyproject(root)
        held = toml(found).get("tool", {}).get("ddpify") if found else None
    except SettingsError as error:
        raise TableThere(str(error)) from error
    if held is not None and not isinstance(held, Mapping):
        raise TableThere(f"{found}: [tool.ddpify] must be a table")
    if held is not None:
        said = ", ".join(f"{key} = {_value(value)}" for key, value in held.items()) or "nothing"
        raise TableThere(f"{found}: has [tool.ddpify] already, with {said}; change it there")


def _rendered(table: Mapping[str, object]) -> str:
    width = max(len(f"{key} = {_value(value)}") for key, value in table.items())
    rows = []
    for key, value in table.items():
        row = f"{key} = {_value(value)}"
        rows.append(f"{row:{width}}  # {_SAYS[key]}" if key in _SAYS else row)
    return f"{_HEAD}[tool.ddpify]\n" + "".join(f"{row}\n" for row in rows)


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def _only_adds(before: str, after: str, table: Mapping[str, object]) -> bool:
    """Whether the file says what it said, and the table."""
    try:
        old, new = parsed_toml(before), parsed_toml(after)
    except ValueError:
        return False
    tools: dict[str, Any] = {**old.get("tool", {}), "ddpify": dict(table)}
    return new == {**old, "tool": tools}
