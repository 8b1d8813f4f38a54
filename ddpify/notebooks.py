"""Notebooks as Python: the cells joined, and the way back to a cell and its line.

What IPython adds to Python (magics, shell lines, help) is blanked, and so is a cell that is no
Python even so: the others are read all the same.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SUFFIX = ".ipynb"
_CELL = re.compile(r"(?P<file>.*\.ipynb):cell (?P<number>\d+)$")
_PLACE = re.compile(r"(?P<path>.*\.ipynb):(?P<line>\d+)")
# Magics of cells whose body is Python all the same.
_PYTHON = re.compile(r"%%(?:time|timeit|capture|prun|snakeviz|memit|python3?)\b")
_MAGIC = re.compile(r"(?P<indent>[ \t]*)(?:[%!?].*|[\w.]+\?{1,2}[ \t]*)$")
_GIVEN = re.compile(r"(?P<target>[ \t]*[\w.,\[\]\"' ]+=[ \t]*)[%!].*$")


class NotebookError(Exception):
    """It is no notebook; the message says why."""


@dataclass(frozen=True)
class Notebook:
    """The joined cells. ``numbers`` are those of the code cells among all, from 1, ``starts`` the
    lines at which they begin; ``left`` are the cells that are no Python, each with the reason."""

    text: str
    numbers: tuple[int, ...]
    starts: tuple[int, ...]
    left: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, raw: bytes) -> Notebook:
        """Read a notebook's file. Raises NotebookError."""
        lines: list[str] = []
        numbers, starts, left = [], [], []
        for number, source in _cells(raw):
            python = _python(source)
            if isinstance(python, SyntaxError):
                left.append((number, python.msg))
                python = "\n".join("" for _ in source.split("\n"))
            numbers.append(number)
            starts.append(len(lines) + 1)
            lines += python.split("\n")
        text = "".join(f"{one}\n" for one in lines)
        return cls(text, tuple(numbers), tuple(starts), tuple(left))

    def place(self, line: int) -> tuple[int, int]:
        """The cell and its line, from 1, in which a line of the text stands."""
        found = max(0, bisect_right(self.starts, line) - 1)
        if not self.starts:
            return 1, 1
        return self.numbers[found], line - self.starts[found] + 1

    def named(self, place: str) -> str:
        """``a.ipynb:30`` as a place in a cell; any other place as it is."""
        match = _PLACE.fullmatch(place)
        if match is None:
            return place
        cell, line = self.place(int(match["line"]))
        return f"{in_cell(match['path'], cell)}:{line}"


def cell_lines(raw: bytes, number: int) -> tuple[str, ...]:
    """The lines of a cell as they are written; none, where there is no such cell."""
    try:
        found = dict(_cells(raw)).get(number, "")
    except NotebookError:
        return ()
    return tuple(found.split("\n"))


def is_notebook(path: str) -> bool:
    """Whether a path is a notebook's, or names a cell of one."""
    return path.endswith(SUFFIX) or _CELL.fullmatch(path) is not None


def in_cell(path: str, number: int) -> str:
    """How a cell is named as part of a path."""
    return f"{path}:cell {number}"


def cell_of(path: str) -> tuple[str, int | None]:
    """The file, and the cell in it that a path names, if it names one."""
    match = _CELL.fullmatch(path)
    return (match["file"], int(match["number"])) if match is not None else (path, None)


def _cells(raw: bytes) -> Iterator[tuple[int, str]]:
    """The code cells of any format of notebooks since the third."""
    try:
        data: Any = json.loads(raw)
        sheets = data.get("worksheets")
        cells = [c for one in sheets for c in one["cells"]] if sheets else data["cells"]
        for number, cell in enumerate(cells, 1):
            source = cell.get("source", cell.get("input", ""))
            text = source if isinstance(source, str) else "".join(source)
            if cell["cell_type"] == "code":
                yield number, text.replace("\r\n", "\n").rstrip("\n")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotebookError(f"not a notebook ({_why(error)})") from error


def _why(error: Exception) -> str:
    if isinstance(error, ValueError):
        return f"no JSON: {error}"
    return f"there is no {error}" if isinstance(error, KeyError) else "its cells are none"


def _python(source: str) -> str | SyntaxError:
    """A cell as Python, or why it is none."""
    error = _error(source)
    if error is None:
        return source
    first = source.lstrip().split("\n", 1)[0]
    if first.startswith("%%") and not _PYTHON.match(first):
        return "\n".join("" for _ in source.split("\n"))
    plain = "\n".join(_blanked(source.split("\n")))
    return plain if _error(plain) is None else error


def _blanked(lines: list[str]) -> Iterator[str]:
    """The lines without what only IPython reads; a line that goes on goes as a whole."""
    goes_on = False
    for line in lines:
        magic, given = _MAGIC.match(line), _GIVEN.match(line)
        if goes_on:
            goes_on = line.endswith("\\")
            yield ""
        elif magic is not None:
            goes_on = line.endswith("\\")
            yield f"{magic['indent']}pass"
        else:
            yield f"{given['target']}None" if given is not None else line


def _error(text: str) -> SyntaxError | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's `"\d"` is not ours to report
            ast.parse(text)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return SyntaxError("it cannot be parsed")
    return None
