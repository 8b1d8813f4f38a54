"""Files that hold data, as lines to compare: a row of a table, a value of a JSON document, a
scalar that was logged. Their columns, keys and tags say what a clock wrote."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from ddpify.verify.checks.clocks import is_clocked, is_time
from ddpify.verify.checks.lines import ShownLine, is_number, line_of, lines, without

_SEPARATORS: Final = {".csv": ",", ".tsv": "\t"}
_DOCUMENTS: Final = {".json": False, ".jsonl": True, ".ndjson": True}  # whether one in each line
_PLACE: Final = re.compile(r"\b\d+\b")


def text_lines(
    text: str, path: str, ignore: Sequence[str] = (), folder: str = ""
) -> tuple[ShownLine, ...]:
    """A file's lines, by what its name says it is; ``folder`` is where the run took place."""
    suffix = PurePosixPath(path).suffix.lower()
    try:
        if suffix in _SEPARATORS:
            rows = csv.reader(io.StringIO(text, newline=""), delimiter=_SEPARATORS[suffix])
            return tuple(_table([row for row in rows if any(row)], ignore, folder))
        if suffix in _DOCUMENTS:
            parts = text.splitlines() if _DOCUMENTS[suffix] else [text]
            found = [json.loads(part) for part in parts if part.strip()]
            return tuple(line for one in found for line in _document(one, "", ignore, folder))
    except (ValueError, RecursionError, csv.Error):
        pass  # it is not what its name says
    return lines(text, ignore, folder)


def scalar_lines(
    found: Mapping[str, Sequence[tuple[int, float]]], ignore: Sequence[str] = ()
) -> Iterator[ShownLine]:
    """The scalars of one run. The step is among the words, so that one that is missing is named
    alone; events hold seven digits."""
    for tag, values in sorted(found.items()):
        for step, value in values:
            place = f"{tag}, step {step}"
            if is_clocked(tag):
                yield ShownLine(place, place, (), clocks=1)
            else:
                yield _value(place, f"{value:.7g}", tag, ignore)


def _table(rows: list[list[str]], ignore: Sequence[str], folder: str) -> Iterator[ShownLine]:
    """A heading is a first row without numbers."""
    headed = bool(rows) and not any(is_number(cell.strip()) for cell in rows[0])
    names = rows[0] if headed else []
    for row in rows:
        cells = (
            _cell(names[place] if place < len(names) else "", cell, ignore, folder)
            for place, cell in enumerate(row)
        )
        yield _joined(",".join(row), list(cells))


def _cell(name: str, text: str, ignore: Sequence[str], folder: str) -> ShownLine:
    if is_clocked(name) and text != name:
        return ShownLine(text, "", (), clocks=1)
    return _value("", text.replace(folder, "<folder>") if folder else text, name, ignore)


def _joined(text: str, cells: Sequence[ShownLine]) -> ShownLine:
    numbers = tuple(number for cell in cells for number in cell.numbers)
    clocks = sum(cell.clocks for cell in cells)
    return ShownLine(text, ", ".join(cell.words for cell in cells), numbers, clocks=clocks)


def _document(value: Any, path: str, ignore: Sequence[str], folder: str) -> Iterator[ShownLine]:
    """Each number and text in it, under its keys."""
    if isinstance(value, dict):
        for key in sorted(value):
            below = f"{path}/{key}" if path else str(key)
            if is_clocked(key) and not isinstance(value[key], (dict, list)):
                yield ShownLine(below, below, (), clocks=1)
            else:
                yield from _document(value[key], below, ignore, folder)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _document(each, f"{path}/{place}" if path else str(place), ignore, folder)
    else:
        shown = value if isinstance(value, str) else json.dumps(value)
        if folder:
            shown = shown.replace(folder, "<folder>")
        yield _value(path, shown, _PLACE.sub("#", path), ignore)


def _value(place: str, text: str, series: str, ignore: Sequence[str]) -> ShownLine:
    """One number or text; numbers in ``place`` are part of its name."""
    shown = f"{place}: {text}" if place else text
    number = without(shown, ignore).removeprefix(f"{place}: ").strip() if ignore else text.strip()
    if is_number(number):
        if is_time(number):
            return ShownLine(shown, place, (), series, clocks=1)
        return ShownLine(shown, f"{place}: #", (number,), series)
    line = line_of(number)
    return ShownLine(shown, f"{place}: {line.words}", line.numbers, series, line.clocks)
