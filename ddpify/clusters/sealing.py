"""Whether a start file is as ddpify wrote it, and of which program: else it is left alone."""

from __future__ import annotations

import hashlib
import re

_MARK = "# ddpify start file "
_LINE = re.compile(rf"^{_MARK}([0-9a-f]{{12}}) of (.*): .*\n", re.MULTILINE)
_SAYS = "renewed by ddpify until somebody edits it."


def sealed(text: str, entry: str) -> str:
    """The text that starts a program, with the line that seals it (behind the interpreter's)."""
    first, rest = text.split("\n", 1) if text.startswith("#!") else ("", text)
    head = f"{first}\n" if first else ""
    return f"{head}{_MARK}{_seal(text)} of {entry}: {_SAYS}\n{rest}"


def program_of(text: str) -> str | None:
    """Which program ddpify wrote it for, whoever has edited it since; None: not ddpify's."""
    found = _LINE.search(text[:500])
    return found and found.group(2)


def is_untouched(text: str) -> bool:
    """Whether it is what ddpify wrote, to the letter."""
    found = _LINE.search(text[:500])
    return found is not None and _seal(text.replace(found.group(0), "", 1)) == found.group(1)


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
