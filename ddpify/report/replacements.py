"""What a change replaces in a file: whole lines by whole lines."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddpify.plan import Change
from ddpify.site import Span
from ddpify.source import Source, UnreadableSource


def replacements(change: Change) -> Iterator[tuple[Span, str]]:
    """The spans that go, each with the text that takes its place."""
    old, new = (list(io.StringIO(_text(raw), newline="")) for raw in (change.before, change.after))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag != "equal":
            yield _lines(old, first, last), "".join(new[begin:end])


def _lines(lines: Sequence[str], first: int, last: int) -> Span:
    """From the beginning of one line to that of another, or to the end of the file."""
    start, end = (_start(lines, number) for number in (first, last))
    return Span(*start, *end)


def _start(lines: Sequence[str], number: int) -> tuple[int, int]:
    if number < len(lines) or not lines or lines[-1].endswith(("\n", "\r")):
        return number + 1, 0
    return len(lines), len(lines[-1])


def _text(raw: bytes | None) -> str:
    try:
        return Source.from_bytes(raw or b"", Path(), "").text
    except UnreadableSource:
        return Source.plain(raw or b"", Path(), "").text
