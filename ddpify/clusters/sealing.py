"""Whether a start file is as ddpify wrote it: only then may it be written anew."""

from __future__ import annotations

import hashlib
import re

_MARK = "# ddpify start file "
_LINE = re.compile(rf"^{_MARK}([0-9a-f]{{12}}): .*\n", re.MULTILINE)
_SAYS = "renewed by ddpify as long as nobody edits it; then it is yours."


def sealed(text: str) -> str:
    """A text with the line that seals it, behind the interpreter's if it has one."""
    first, rest = text.split("\n", 1) if text.startswith("#!") else ("", text)
    head = f"{first}\n" if first else ""
    return f"{head}{_MARK}{_seal(text)}: {_SAYS}\n{rest}"


def is_ours(text: str) -> bool:
    """Whether ddpify wrote it, whoever has edited it since."""
    return _LINE.search(text[:500]) is not None


def is_untouched(text: str) -> bool:
    """Whether it is what ddpify wrote, to the letter."""
    found = _LINE.search(text[:500])
    return found is not None and _seal(text.replace(found.group(0), "", 1)) == found.group(1)


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
