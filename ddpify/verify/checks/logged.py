"""The numbers that a program prints and logs, as courses that can be drawn."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.lines import ShownLine
from ddpify.verify.checks.outputs import beside
from ddpify.verify.verdict import Logged, Points

_MOST: Final = 24
_STEP: Final = re.compile(r", step (\d+)(?:: #)?$")
_TABLES: Final = {".csv": ",", ".tsv": "\t"}
_Columns: TypeAlias = "dict[tuple[str, int], list[tuple[float | None, float]]]"


def logged(c: Comparison) -> tuple[Logged, ...]:
    """Of the one process and of rank 0, by the words around each number; not what only counts."""
    return tuple(_every(c))[:_MOST]


def _every(c: Comparison) -> Iterator[Logged]:
    for place, one, other in beside(c):
        names = _heading(place, one or other)
        own = {line.series for line in (*one, *other)}  # keys and tags, which are names already
        ours, theirs = _columns(one), _columns(other)
        counters = {kind: at for kind, at in ours if _counts(ours[kind, at])}
        for key in dict.fromkeys((*ours, *theirs)):
            kind, at = key
            found = [_points(columns, key, counters.get(kind)) for columns in (ours, theirs)]
            if counters.get(kind) != at and max(map(len, found)) > 1 and _moves(found):
                words = kind.replace("/#", "") if kind in own else _name(kind, at)
                yield Logged(names[at] if at < len(names) else words, place, *found)


def _columns(lines: Sequence[ShownLine]) -> _Columns:
    """By what lines have in common and the number's place in them: the step, if it is said."""
    found: _Columns = defaultdict(list)
    for line in lines:
        step = _STEP.search(line.words)
        for at, number in enumerate(line.numbers):
            value = float(number)
            found[line.kind, at].append((float(step[1]) if step else None, value))
    return found


def _counts(column: Sequence[tuple[float | None, float]]) -> bool:
    """Epochs and steps: whole numbers that grow evenly."""
    values = [value for _, value in column]
    steps = {after - before for before, after in pairwise(values)}
    return len(steps) == 1 and min(steps) > 0 and all(value.is_integer() for value in values)


def _points(columns: _Columns, key: tuple[str, int], counter: int | None) -> Points:
    """Against the step, the line's own counter, or which line it is."""
    column = columns.get(key, [])
    counted = columns.get((key[0], counter), []) if counter is not None else []
    places = [value for _, value in counted]
    return tuple(
        (step if step is not None else places[n] if n < len(places) else float(n), value)
        for n, (step, value) in enumerate(column)
    )


def _moves(found: Sequence[Points]) -> bool:
    values = {value for points in found for _, value in points if math.isfinite(value)}
    return len(values) > 1


def _heading(place: str, lines: Sequence[ShownLine]) -> Sequence[str]:
    """A table's first row, where it has no numbers."""
    separator = _TABLES.get(PurePosixPath(place).suffix.lower())
    headed = separator and lines and not lines[0].numbers
    return [name.strip() for name in lines[0].text.split(separator)] if headed else ()


def _name(kind: str, at: int) -> str:
    """What stands before the number, or behind it."""
    parts = kind.split("#")
    before = parts[at].strip(" \t:=,;|([{/-")
    words = before.split()
    return " ".join(words[-2:]) or parts[-1].strip(" \t:=,;|)]}") or f"number {at + 1}"
