"""What two runs printed or logged, line by line: the same words, and the same numbers up to
the last digit shown. Whatever a clock wrote is not compared."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from ddpify.verify.checks.clocks import clocked_columns, without_clocks

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9])")
_NUMBER = re.compile(r"(?<![\w.])([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?!\w|\.\d)")
_PROCESSES = re.compile(r"\b(?:devices|gpus|num_processes|world_size|ranks)\W*$", re.IGNORECASE)
_SHARDED = re.compile(r"\bFSDP(?=[A-Z]\w*\()")  # fully_shard renames a class: `FSDPNet(` for `Net(`
_ENOUGH = 2  # digits from which on a number may differ in the last: with fewer it says much
_MORE = 4  # the same, where the other number has fewer
_MANY = 4000  # lines above which texts are compared in order only, because matching is quadratic


@dataclass(frozen=True)
class ShownLine:
    """``words`` is the text with "#" for each number.

    ``series`` is what lines have in common whose numbers are of one kind, by default the words;
    ``clocks`` counts what was left out because a clock wrote it.
    """

    text: str
    words: str
    numbers: tuple[str, ...]
    series: str = ""
    clocks: int = 0

    @property
    def kind(self) -> str:
        return self.series or self.words


@dataclass(frozen=True)
class Difference:
    """A line of either side, "" where it has none; ``ratios`` of the numbers that differ."""

    reference: str
    distributed: str
    ratios: tuple[float, ...] = ()

    def __str__(self) -> str:
        if not self.reference:
            return f"extra: {self.distributed}"
        if not self.distributed:
            return f"missing: {self.reference}"
        return f"{self.distributed!r} instead of {self.reference!r}"


def lines(text: str, ignore: Sequence[str] = (), folder: str = "") -> tuple[ShownLine, ...]:
    """The lines to compare; ``folder`` is where the run took place, its copy of the project."""
    plain = _SHARDED.sub("", _ANSI.sub("", text).replace("\b", ""))
    plain = plain.replace(folder, "<project>") if folder else plain
    shown = (last_state(line) for line in plain.split("\n"))
    rows = _without_clock_columns([row for row in shown if row.strip()])
    return tuple(line for line in (line_of(row, ignore) for row in rows) if line.words)


def differences(
    reference: Sequence[ShownLine],
    distributed: Sequence[ShownLine],
    tolerance: float,
    same: frozenset[tuple[str, str]] = frozenset(),
) -> Iterator[Difference]:
    """Pairs of numbers in ``same`` do not count as different."""
    floors = _floors(reference, tolerance)
    for one, other in _beside(reference, distributed):
        if one is None or other is None or one.words != other.words:
            yield Difference(one.text if one else "", other.text if other else "")
            continue
        places = enumerate(zip(one.numbers, other.numbers, strict=True))
        ratios = tuple(
            _ratio(pair)
            for place, pair in places
            if pair not in same
            and not _near(*pair, tolerance, floors[one.kind, place])
            and not _counts_processes(one.words.split("#")[place], *pair)
        )
        if ratios:
            yield Difference(one.text, other.text, ratios)


def _counts_processes(before: str, one: str, other: str) -> bool:
    """``devices: 1`` of one process and ``devices: 2`` of two: that is how they were started."""
    return one == "1" and other.isdigit() and _PROCESSES.search(before) is not None


def line_of(row: str, ignore: Sequence[str] = (), series: str = "") -> ShownLine:
    """A line of text; of what matches ``ignore`` nothing is compared."""
    kept, clocks = without_clocks(without(row, ignore))
    parts = _NUMBER.split(kept)
    words = " ".join("#".join(parts[0::2]).split())
    return ShownLine(row.strip(), words, tuple(parts[1::2]), series, clocks)


def without(text: str, ignore: Sequence[str]) -> str:
    """The text without what matches one of the patterns."""
    for pattern in ignore:
        text = re.sub(pattern, "", text)
    return text


def is_number(text: str) -> bool:
    """Whether the whole text is a number, as programs write them."""
    return bool(_NUMBER.fullmatch(text))


def last_state(line: str) -> str:
    """A progress bar rewrites its line: what was shown last counts."""
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""


def _without_clock_columns(rows: list[str]) -> list[str]:
    """Of a table with commas or tabs: columns whose heading says that they are a time."""
    for separator in (",", "\t"):
        head = rows[0].split(separator) if rows else []
        clocked = clocked_columns(head)
        if len(head) > 1 and clocked and not _NUMBER.search(rows[0]):
            cells = (row.split(separator) for row in rows[1:])
            kept = ([c for p, c in enumerate(row) if p not in clocked] for row in cells)
            return [rows[0], *map(separator.join, kept)]
    return rows


def _beside(
    reference: Sequence[ShownLine], distributed: Sequence[ShownLine]
) -> Iterator[tuple[ShownLine | None, ShownLine | None]]:
    """Lines of the same words side by side, so that one that is missing is named alone."""
    words, others = [line.words for line in reference], [line.words for line in distributed]
    if words == others or max(len(words), len(others)) > _MANY:
        yield from zip_longest(reference, distributed)
        return
    for _, a, b, c, d in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        yield from zip_longest(reference[a:b], distributed[c:d])


def _floors(lines: Sequence[ShownLine], tolerance: float) -> dict[tuple[str, int], float]:
    """By kind of line and place: what is rounding beside the largest number that stands there."""
    found: dict[tuple[str, int], float] = defaultdict(float)
    for line in lines:
        for place, number in enumerate(line.numbers):
            size = abs(float(number))
            if math.isfinite(size):
                found[line.kind, place] = max(found[line.kind, place], tolerance * size)
    return found


def _ratio(pair: tuple[str, str]) -> float:
    value, other = map(float, pair)
    return other / value if value else float("inf")


def _near(number: str, other: str, tolerance: float, floor: float) -> bool:
    """Counts are equal or not; what was rounded for display may differ in the last digit.

    Of numbers whose last zeros are not shown (0.1 and 0.0999) the one with more digits tells.
    """
    if number == other:
        return True
    if not any(mark in text.lower() for text in (number, other) for mark in ".e"):
        return int(number) == int(other)
    apart = abs(float(number) - float(other))
    rounding = max(tolerance * abs(float(number)), floor)
    digits, lasts = ([of(text) for text in (number, other)] for of in (_digits, _last_digit))
    if min(digits) >= _ENOUGH:
        rounding += 1.5 * max(lasts)
    elif max(digits) >= _MORE:
        rounding += 1.5 * min(lasts)
    return apart <= rounding


def _digits(number: str) -> int:
    """Significant ones."""
    return len(number.lower().partition("e")[0].replace(".", "").lstrip("+-0"))


def _last_digit(number: str) -> float:
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(10.0 ** (int(exponent or 0) - decimals))
