"""The published schemas, read strictly: a key that they do not name is no key of the document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from ddpify import schemas

RECORDED = Path(__file__).parent


@cache
def schema(command: str) -> dict[str, Any]:
    """As it is published."""
    found: dict[str, Any] = json.loads(schemas.text(command))
    return found


def validate(command: str, text: str) -> None:
    """Raises AssertionError with the place and what to do about it."""
    errors = [*_strict(command).iter_errors(json.loads(text))]
    if errors:
        best = jsonschema.exceptions.best_match(errors)
        raise AssertionError(
            f"`{command}` printed what ddpify/schemas/{schemas.FILES[command]}.schema.json does "
            f"not describe, at {best.json_path}: {best.message[:300]}"
        )


@cache
def _strict(command: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(_closed(schema(command)))


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _closed(value) for key, value in part.items()}
    return {**found, "additionalProperties": False} if "required" in part else found


def version(command: str) -> int:
    """What the documents have under ``schema``."""
    whole = schema(command)
    top = whole.get("properties") or whole["$defs"]["rule"]["properties"]
    found: int = top["schema"]["const"]
    return found


def shape(command: str) -> list[str]:
    """A line for each key with its type, such as ``findings[].line integer``."""
    whole = schema(command)
    return sorted(set(_shape(whole, whole, "")))


def _shape(part: dict[str, Any], whole: dict[str, Any], path: str) -> Iterator[str]:
    if "$ref" in part:
        yield from _shape(whole["$defs"][part["$ref"].rpartition("/")[2]], whole, path)
        return
    for one in part.get("anyOf", ()):
        yield from _shape(one, whole, path)
    if "anyOf" in part:
        return
    required = part.get("required", ())
    kind = json.dumps(part.get("type", part.get("enum", part.get("const"))))
    yield f"{path or '.'} {kind}"
    for key, value in part.get("properties", {}).items():
        yield from _shape(value, whole, f"{path}.{key}{'' if key in required else '?'}")
    for key in ("items", "additionalProperties"):
        if isinstance(part.get(key), dict):
            yield from _shape(part[key], whole, f"{path}[]")
    for number, value in enumerate(part.get("prefixItems", ())):
        yield from _shape(value, whole, f"{path}[{number}]")


def recorded(command: str) -> Path:
    """The shape of this version as it was published first, and added to since."""
    return RECORDED / f"{schemas.FILES[command]}.v{version(command)}.txt"


def record() -> None:
    """Write down the shapes as they are: after a key was added, or the version has grown."""
    for command in schemas.FILES:
        recorded(command).write_text("".join(f"{line}\n" for line in shape(command)))


if __name__ == "__main__":
    record()
