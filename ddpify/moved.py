"""Where the lines of a file are once it is changed."""

from __future__ import annotations

import difflib
from functools import cache

from ddpify.plan import Change


def line_after(change: Change, line: int) -> int:
    """The line of the new file that a line of the old one became."""
    return _after(change).get(line, line)


@cache
def _after(change: Change) -> dict[int, int]:
    """The number of each line of a file in the new one."""
    old, new = _lines(change.before or b""), _lines(change.after)
    found: dict[int, int] = {}
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        for line in range(i1, i2):
            same = j1 + line - i1
            now = same if tag == "equal" else _alike(old[line], new, range(j1, j2), j1)
            found[line + 1] = now + 1
    return found


def _lines(raw: bytes) -> list[str]:
    return raw.decode("utf-8", "replace").split("\n")


def _alike(line: str, new: list[str], among: range, first: int) -> int:
    """The line that another one became: it may have been indented, or put into a call."""

    def likeness(at: int) -> float:
        return difflib.SequenceMatcher(None, line.strip(), new[at].strip(), False).ratio()

    return max(among, key=likeness, default=first)
