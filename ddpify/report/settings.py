"""The settings that count in a project, as its pyproject.toml would say them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ddpify.settings import Settings


def render(settings: Settings, file: Path | None, root: Path, off: Sequence[str]) -> str:
    """``file`` is where they are read, ``off`` the rules that are switched off."""
    lines = [f"# {root}", f"# read from {file}" if file else "# no pyproject.toml", "[tool.ddpify]"]
    default = Settings()
    for field in fields(Settings):
        key, value = field.name.replace("_", "-"), getattr(settings, field.name)
        said = "{}" if field.name == "per_file_ignores" and not value else _toml(value)
        line = f"# {key} is not set" if value is None else f"{key} = {said}"
        is_default = value is not None and value == getattr(default, field.name)
        lines.append(f"{line}  # default" if is_default else line)
    lines.append(f"# rules that are off: {', '.join(off) or 'none'}")
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(one)}' for key, one in value)} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
