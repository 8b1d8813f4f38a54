"""Notebooks as Python: the cells joined, and the way back to a cell and its line.

What IPython adds to Python (magics, shell lines, help) is blanked, but for the statement that a
magic measures (``%time train()``), and so is a cell that is no Python even so: the others are read.
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
# Magics that run the statement after them, with the letters of their options that take a value.
_MEASURES = {"time": "", "timeit": "nrpv", "prun": "lsTD", "memit": "rti", "lprun": "fmDTsu"}
_OPTIONS = "|".join(
    rf"{name}\b(?:[ \t]+-{f'(?:[{valued}][ ]*[^ ]+|[-a-zA-Z]+)' if valued else '[-a-zA-Z]+'})*"
    for name, valued in _MEASURES.items()
)
_MEASURED = re.compile(rf"%%?(?:{_OPTIONS})[ \t]*")
# Magics of cells whose body is Python all the same.
_PYTHON = re.compile(rf"%%(?:{'|'.join(_MEASURES)}|capture|snakeviz|python3?)\b")
_MAGIC = re.compile(r"(?P<before>[ \t]*)(?P<said>[%!?].*|[\w.]+\?{1,2}[ \t]*)$")
_GIVEN = re.compile(r"(?P<before>[ \t]*[\w.,\[\]\"' ]+=[ \t]*)(?P<said>[%!].*)$")
_SOMETHING = "get_ipython()"  # what a line for IPython gives is not known


class NotebookError(Exception):
    """It is no notebook; the message says why."""


@dataclass(frozen=True)
class _NoCell:
    """A cell that cannot be read, why, and how many of its lines end before another."""

    why: str
    ends: int = 0


@dataclass(frozen=True)
class Notebook:
    """The joined cells. ``numbers`` are those of the code cells among all, from 1, ``starts`` the
    lines at which they begin; ``left`` are the cells that are not read, each with the reason."""

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
            python = source if isinstance(source, _NoCell) else _python(source)
            if isinstance(python, _NoCell):
                left.append((number, python.why))
                python = "\n" * python.ends
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
    return () if isinstance(found, _NoCell) else tuple(found.split("\n"))


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


def _cells(raw: bytes) -> Iterator[tuple[int, str | _NoCell]]:
    """The code cells of any format of notebooks since the third, and what is no cell."""
    try:
        data: Any = json.loads(raw)
        sheets = data.get("worksheets")
        cells = [c for one in sheets for c in one["cells"]] if sheets else [*data["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotebookError(f"not a notebook ({_why(error)})") from error
    for number, cell in enumerate(cells, 1):
        source = _source(cell)
        if source is not None:
            yield number, source


def _source(cell: Any) -> str | _NoCell | None:
    """The code of a cell; None, if it is one of text."""
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        return _NoCell("it has no `cell_type`")
    if cell["cell_type"] != "code":
        return None
    source = cell.get("source", cell.get("input", ""))
    lines: list[Any] = source if isinstance(source, list) else [source]
    if not all(isinstance(line, str) for line in lines):
        return _NoCell("its `source` is no text")
    return "".join(lines).replace("\r\n", "\n").rstrip("\n")


def _why(error: Exception) -> str:
    if isinstance(error, ValueError):
        return f"no JSON: {error}"
    return f"there is no {error}" if isinstance(error, KeyError) else "its cells are none"


def _python(source: str) -> str | _NoCell:
    """A cell as Python, or why it is none."""
    error = _error(source)
    if error is None:
        return source
    ends = source.count("\n")
    first = source.lstrip().split("\n", 1)[0]
    if first.startswith("%%") and not _PYTHON.match(first):
        return "\n" * ends
    plain = "\n".join(_blanked(source.split("\n")))
    return plain if _error(plain) is None else _NoCell(f"not valid Python 3 ({error.msg})", ends)


def _blanked(lines: list[str]) -> Iterator[str]:
    """The lines without what only IPython reads; a line that goes on goes as a whole."""
    left = iter(lines)
    for line in left:
        match = _MAGIC.match(line) or _GIVEN.match(line)
        if match is None:
            yield line
            continue
        said = [match["said"]]
        while said[-1].endswith("\\"):
            said.append(next(left, ""))
        first, *more = _told("\n".join(said), match.re is _GIVEN).split("\n")
        yield match["before"] + first
        yield from more


def _told(said: str, given: bool) -> str:
    """The Python in a line for IPython, at its column where that can be; or what stands for it."""
    magic = _MEASURED.match(said)
    if magic is not None and (rest := said[magic.end() :]):
        for begin in [""] if given else ["pass;", ""]:
            told = begin.ljust(magic.end() if begin or given else 0) + rest
            if _error(f"x = {told}" if given else told) is None:
                return told
    return (_SOMETHING if given else "pass") + "\n" * said.count("\n")


def _error(text: str) -> SyntaxError | None:
    """Why a cell does not run: as IPython does it, each of its statements is compiled by itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's `"\d"` is not ours to report
            for node in ast.parse(text).body:
                one = ast.Module([node], [])
                compile(one, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return SyntaxError("it cannot be parsed")
    return None
