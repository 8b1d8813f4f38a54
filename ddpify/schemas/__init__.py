"""JSON Schemas of what the commands print for programs; the files beside this one are the source.

They allow keys that they do not know: what is added does not change ``schema``, the version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

# Each command, and the file that describes what it prints.
FILES: Final = {
    "check": "check",
    "diff": "diff",
    "migrate": "diff",
    "plan": "plan",
    "rule": "rule",
    "statistics": "statistics",
    "verify": "verify",
}


def text(command: str) -> str:
    """The schema of what a command prints, as JSON."""
    return Path(__file__).with_name(f"{FILES[command]}.schema.json").read_text("utf-8")
