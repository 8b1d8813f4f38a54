"""What two runs printed or logged, line by line: the same words, and the same numbers up to
the last digit shown. Whatever a clock wrote is not compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9])")
_NUMBER = re.compile(r"(?<![\w.])([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?!\w|\.\d)")
_VALUE = r"[-+]?\d+(?:[.,]\d+)?(?:e[-+]?\d+)?"
_SECONDS = r"(?:s|secs?|seconds?|ms|msecs?|milliseconds?|us|µs|mins|minutes?|hrs?|hours?)"
_DAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_CLOCKED = (
    r"[\w/-]*time(?:_(?:m?s|secs?|seconds?|min(?:ute)?s?|h(?:ou)?rs?))?|elapsed|eta|etc|took"
    r"|secs?|seconds?|throughput|speed|duration|fps|it/s|sps"
    r"|(?:ima?ge?s?|samples?|tokens?|batch(?:es)?|steps?)(?:/|_per_)s(?:ec(?:ond)?)?"
    r"|(?:max[_ ]|peak[_ ]|gpu[_ ])*mem(?:ory)?|pid|timestamp"
)
_CLOCKS = (
    r"\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T _-]+\d{1,2}[:_-]\d{2}(?:[:_-]\d{2})?(?:[.,]\d+)?)?Z?",
    r"\b(?:19|20)\d{6}[-_T]?\d{4,6}\b",
    rf"\b{_DAY}\b,?\s+(?:\d{{1,2}}\s+)?{_MONTH}\b\.?(?:\s+\d{{1,2}}\b)?",
    r"\b(?:\d+ days?, )?\d{1,4}:\d{2}(?::\d{2})?(?:[.,]\d+)?\b",
    rf"\b{_VALUE}\s?(?:[a-z]+\s?/\s?s(?:ec(?:ond)?)?|{_SECONDS}\s?/\s?[a-z]+)\b",
    rf"(?<![\w.])(?:\d+\s?(?:min|[dhms])\s?)*{_VALUE}\s?{_SECONDS}\b",
    r"(?<![\w.])(?:\d+\s?(?:min|[dhms])\s?)*\d+(?:\.\d+)?(?:[hm]|min)\b",
    rf"(?<![\w.]){_VALUE}\s?[KMGT]i?B\b",
    rf"(?<!\w)(?:{_CLOCKED})(?:\s*[(\[][^)\]]*[)\]])?[\"']?\s*[:=]?\s*{_VALUE}(?:\s*\({_VALUE}\))?(?![\w.]*:)",
    rf"\bdata\s+{_VALUE}\s*\({_VALUE}\)",  # seconds that loading took, as meters show them
    r"\b0x[0-9a-f]+\b",
    r"\b1[6-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b",  # time.time(), and its smaller units
)
_CLOCK = re.compile("|".join(f"(?:{pattern})" for pattern in _CLOCKS), re.IGNORECASE)
_CLOCK_COLUMN = re.compile(rf"(?<!\w)(?:{_CLOCKED}|date|now)(?!\w)", re.IGNORECASE)
_ENOUGH = 2  # digits from which on a number may differ in the last
_MANY = 4000  # lines above which texts are compared in order only, because matching is quadratic


@dataclass(frozen=True)
class ShownLine:
    """``words`` is the text with "#" for each number."""

    text: str
    words: str
    numbers: tuple[str, ...]


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
    plain = _ANSI.sub("", text).replace("\b", "")
    plain = plain.replace(folder, "<project>") if folder else plain
    shown = (_last_state(line) for line in plain.split("\n"))
    rows = _without_clock_columns([row for row in shown if row.strip()])
    return tuple(line for line in (_line(row, ignore) for row in rows) if line.words)


def differences(
    reference: Sequence[ShownLine],
    distributed: Sequence[ShownLine],
    tolerance: float,
    same: frozenset[tuple[str, str]] = frozenset(),
) -> Iterator[Difference]:
    """Pairs of numbers in ``same`` do not count as different."""
    for one, other in _beside(reference, distributed):
        if one is None or other is None or one.words != other.words:
            yield Difference(one.text if one else "", other.text if other else "")
            continue
        pairs = zip(one.numbers, other.numbers, strict=True)
        ratios = tuple(_ratios([pair for pair in pairs if pair not in same], tolerance))
        if ratios:
            yield Difference(one.text, other.text, ratios)


def _last_state(line: str) -> str:
    """A progress bar rewrites its line: what was shown last counts."""
    states = [state for state in line.split("\r") if state.strip()]
    return states[-1] if states else ""


def _line(row: str, ignore: Sequence[str]) -> ShownLine:
    kept = row
    for pattern in ignore:
        kept = re.sub(pattern, "", kept)
    parts = _NUMBER.split(_CLOCK.sub("<clock>", kept))
    words = " ".join("#".join(parts[0::2]).split())
    return ShownLine(row.strip(), words, tuple(parts[1::2]))


def _without_clock_columns(rows: list[str]) -> list[str]:
    """Of a table with commas or tabs: columns whose heading says that they are a time."""
    for separator in (",", "\t"):
        head = rows[0].split(separator) if rows else []
        clocked = {place for place, name in enumerate(head) if _CLOCK_COLUMN.search(name)}
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


def _ratios(pairs: Sequence[tuple[str, str]], tolerance: float) -> Iterator[float]:
    for number, other in pairs:
        if not _near(number, other, tolerance):
            value = float(number)
            yield float(other) / value if value else float("inf")


def _near(number: str, other: str, tolerance: float) -> bool:
    """Counts are equal or not; what was rounded for display may differ in the last digit."""
    if number == other:
        return True
    if not any(mark in text.lower() for text in (number, other) for mark in ".e"):
        return int(number) == int(other)
    apart = abs(float(number) - float(other))
    rounding = tolerance * abs(float(number))
    if min(_digits(number), _digits(other)) >= _ENOUGH:  # with fewer, the last one says much
        rounding += 1.5 * max(_last_digit(number), _last_digit(other))
    return apart <= rounding


def _digits(number: str) -> int:
    """Significant ones."""
    return len(number.lower().partition("e")[0].replace(".", "").lstrip("+-0"))


def _last_digit(number: str) -> float:
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(10.0 ** (int(exponent or 0) - decimals))
