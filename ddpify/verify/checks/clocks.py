"""What a clock wrote, told by its form and the words beside it: it differs by right.

A number's own digits never look like a clock: nothing here begins behind a decimal point.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_START: Final = r"(?<![\w.])"
_VALUE: Final = r"[-+]?\d+(?:[.,]\d+)?(?:e[-+]?\d+)?"
_SECONDS: Final = r"(?:s|secs?|seconds?|ms|msecs?|milliseconds?|us|µs|mins|minutes?|hrs?|hours?)"
_WEEKDAY: Final = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTH: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_MONTH_DAY: Final = r"(?:0?[1-9]|1[0-2])(?P=sep)(?:0?[1-9]|[12]\d|3[01])(?!\d)"
_OF_DAY: Final = r"(?:[T _-]+\d{1,2}[:_-]\d{2}(?:[:_-]\d{2})?(?:[.,]\d+)?)?Z?"
_PARTS: Final = r"(?:\d+\s?(?:min|[dhms])\s?)*"
_CLOCKED: Final = (
    r"[\w/-]*time(?:_(?:m?s|secs?|seconds?|min(?:ute)?s?|h(?:ou)?rs?))?|elapsed|eta|etc|took"
    r"|secs?|seconds?|throughput|speed|duration|fps|it/s|sps"
    r"|(?:ima?ge?s?|samples?|tokens?|batch(?:es)?|steps?)(?:/|_per_)s(?:ec(?:ond)?)?"
    r"|(?:[mu]?s|m?secs?)(?:/|_per_)(?:ima?ge?|sample|token|batch|step|it(?:er)?|epoch)s?"
    r"|(?:max[_ ]|peak[_ ]|gpu[_ ])*mem(?:ory)?|pid|timestamp"
)
_PATTERNS: Final = (
    rf"{_START}(?:19|20)\d\d(?P<sep>[-/.]){_MONTH_DAY}{_OF_DAY}",
    rf"{_START}(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d[-_T]?\d{{4,6}}\b",
    rf"\b{_WEEKDAY}\b,?\s+(?:\d{{1,2}}\s+)?{_MONTH}\b\.?(?:\s+\d{{1,2}}\b)?",
    rf"{_START}(?:\d+ days?, )?(?:\d{{1,4}}:\d{{2}}:\d{{2}}|\d{{2,4}}:[0-5]\d)(?:[.,]\d+)?\b",
    rf"(?<!\w)(?:{_CLOCKED})\s*[:=]?\s*\d+:[0-5]\d(?::\d{{2}})?(?:[.,]\d+)?\b",
    rf"{_START}{_VALUE}\s?(?:[a-z]+\s?/\s?s(?:ec(?:ond)?)?|{_SECONDS}\s?/\s?[a-z]+)\b",
    rf"{_START}{_PARTS}{_VALUE}\s?{_SECONDS}\b",
    rf"{_START}{_PARTS}\d+(?:\.\d+)?(?:[hm]|min)\b",
    rf"{_START}{_VALUE}\s?[KMGT]i?B\b",
    rf"(?<!\w)(?:{_CLOCKED})(?:\s*[(\[][^)\]]*[)\]])?[\"']?\s*[:=]?\s*"
    rf"{_VALUE}(?:\s*\({_VALUE}\))?(?![\w.]*:)",
    rf"\bdata\s+{_VALUE}\s*\({_VALUE}\)",  # seconds that loading took, as meters show them
    r"\b0x[0-9a-f]+\b",
    # time.time(), and its smaller units
    rf"{_START}1[6-9]\d{{8}}(?:\d{{3}}|\d{{6}}|\d{{9}})?(?:\.\d+)?\b",
)
_CLOCK: Final = re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS), re.IGNORECASE)
_NAME: Final = re.compile(
    rf"(?<![^\W_])(?:{_CLOCKED}|date|now)(?:_(?:m?s|secs?|[kmg]i?b|per_\w+))?(?!\w)", re.IGNORECASE
)
_SINCE_1970: Final = re.compile(r"1[6-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?")


def without_clocks(text: str) -> tuple[str, int]:
    """The text with a sign for each reading of a clock, and how many there were."""
    return _CLOCK.subn("<clock>", text)


def is_clocked(name: str) -> bool:
    """Whether a column, a key or a tag of this name holds a time, a speed or a size of memory."""
    return bool(_NAME.search(name))


def is_time(number: str) -> bool:
    """Whether a number that stands alone is one of seconds since 1970, or of a part of them."""
    return bool(_SINCE_1970.fullmatch(number))


def clocked_columns(names: Sequence[str]) -> frozenset[int]:
    """The places of the columns of such names."""
    return frozenset(place for place, name in enumerate(names) if is_clocked(name))
