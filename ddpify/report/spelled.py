"""How places are spelled for who reads them: from the current folder, in the files as written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ddpify.moved import line_after
from ddpify.outcome import Outcome
from ddpify.roots import shown

# A file with its ending, which is not the end of a longer path.
_FILE = r"(?:[\w.+-]+/)*[\w+-][\w.+-]*\.\w+"
_BEGINS = r"(?<![\w/\\.+-])"
_ENDS = r"(?![\w/\\~]|[.+-]\w)"  # a sentence may end with it
_URL = r"\b\w+://\S+"  # whatever it holds is no file of the project


def spelled(outcome: Outcome, before: str = "", *, written: bool = False) -> Callable[[str], str]:
    """What turns ``main.py:12`` in a sentence into ``src/main.py:14``.

    ``before`` leads from the current folder to the project. ``written``: lines are those of the
    files as they were written, not as they were read.
    """
    changes = {one.path: one for one in outcome.changes if one.before is not None and written}
    known = {*outcome.files, *outcome.entries, *(one.path for one in outcome.changes)}
    named = sorted(known, key=len, reverse=True)
    files = "|".join([*map(re.escape, named), _FILE])
    places = re.compile(rf"{_URL}|{_BEGINS}({files}){_ENDS}(?::(\d+)\b)?")

    def one(found: re.Match[str]) -> str:
        path, number = found[1], found[2]
        if path is None or not (path in named or (outcome.root / path).is_file()):
            return found[0]
        if number is None:
            return placed(before, path)
        line = line_after(changes[path], int(number)) if path in changes else number
        return f"{placed(before, path)}:{line}"

    return lambda text: places.sub(one, text)


def placed(before: str, path: str) -> str:
    """A file of the project, from the current folder, which may lie in the project."""
    return shown(Path(before, path)) if Path(before).is_absolute() else f"{before}{path}"
