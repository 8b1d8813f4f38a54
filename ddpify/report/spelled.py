"""How places are spelled for who reads them: from the current folder, in the files as written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ddpify.outcome import Outcome
from ddpify.plan import Change
from ddpify.report.hunks import lines_of
from ddpify.roots import shown

# A file with its ending, which is not the end of a longer path.
_FILE = r"(?:[\w.+-]+/)*[\w+-][\w.+-]*\.\w+"


def spelled(outcome: Outcome, before: str = "", *, written: bool = False) -> Callable[[str], str]:
    """What turns ``main.py:12`` in a sentence into ``src/main.py:14``.

    ``before`` leads from the current folder to the project. ``written``: lines are those of the
    files as they were written, not as they were read.
    """
    changes = {one.path: one for one in outcome.changes if one.before is not None and written}
    known = {*outcome.files, *outcome.entries, *(one.path for one in outcome.changes)}
    named = sorted(known, key=len, reverse=True)
    files = "|".join([*map(re.escape, named), _FILE])
    places = re.compile(rf"(?<![\w/.+-])({files})(?::(\d+))?(?![\w/])")

    def one(found: re.Match[str]) -> str:
        path, number = found[1], found[2]
        if path not in named and not (outcome.root / path).is_file():
            return found[0]
        if number is None:
            return placed(before, path)
        line = _after(changes[path]).get(int(number), number) if path in changes else number
        return f"{placed(before, path)}:{line}"

    return lambda text: places.sub(one, text)


def placed(before: str, path: str) -> str:
    """A file of the project, from the current folder, which may lie in the project."""
    return shown(Path(before, path)) if Path(before).is_absolute() else f"{before}{path}"


@cache
def _after(change: Change) -> dict[int, int]:
    """The number of each line of a file in the new one."""
    old, new = lines_of(change.before or b""), lines_of(change.after)
    found: dict[int, int] = {}
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        for line in range(i1, i2):
            same = j1 + line - i1
            now = same if tag == "equal" else _alike(old[line], new, range(j1, j2), j1)
            found[line + 1] = now + 1
    return found


def _alike(line: str, new: list[str], among: range, first: int) -> int:
    """The line that another one became: it may have been indented, or put into a call."""

    def likeness(at: int) -> float:
        return difflib.SequenceMatcher(None, line.strip(), new[at].strip(), False).ratio()

    return max(among, key=likeness, default=first)
