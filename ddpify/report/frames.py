"""The source around a place, with line numbers and the place underlined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from ddpify.notebooks import cell_lines, cell_of
from ddpify.site import Span
from ddpify.source import Source, UnreadableSource

_TAB = "    "
_MOST = 6  # lines of a long place that are shown


class Lines:
    """The lines of files, each read once; ``texts`` are not (yet) as on disk."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self._texts = texts
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, path: str) -> tuple[str, ...]:
        """The lines of a file without their ends; none if it cannot be read any more."""
        if path not in self._known:
            lines = self._read(path)
            self._known[path] = lines[:-1] if lines and not lines[-1] else lines
        return self._known[path]

    def _read(self, path: str) -> tuple[str, ...]:
        named, cell = cell_of(path)
        file = Path(named)
        try:
            raw = self._texts[named] if named in self._texts else file.read_bytes()
        except OSError:
            return ()
        if cell is not None:
            return cell_lines(raw, cell)
        try:
            return Source.from_bytes(raw, file, path).lines
        except UnreadableSource:
            return Source.plain(raw, file, path).lines


def frame(span: Span, lines: Sequence[str], color: bool, around: int = 1) -> Iterator[str]:
    """The lines of ``span``, ``around`` more on both sides, marked with ``^``."""
    last = min(span.end_line, span.line + _MOST - 1)
    first, end = max(1, span.line - around), min(len(lines), last + around)
    if span.line > len(lines):
        return
    width = len(str(end))
    bar = click.style("|", fg="blue") if color else "|"
    yield f"{' ' * (width + 1)} {bar}"
    for number in range(first, end + 1):
        text = lines[number - 1]
        yield f" {number:>{width}} {bar} {_tabless(text)}".rstrip()
        if span.line <= number <= last:
            marks = _marks(text, number, span)
            yield f"{' ' * (width + 1)} {bar} {click.style(marks, fg='red') if color else marks}"
    yield f"{' ' * (width + 1)} {bar}"


def _marks(text: str, number: int, span: Span) -> str:
    """Spaces up to the place, then as many marks as it has characters in this line."""
    indent = len(text) - len(text.lstrip())
    start = span.column if number == span.line else indent
    end = span.end_column if number == span.end_line else len(text.rstrip())
    before = len(_tabless(text[:start]))
    return " " * before + "^" * max(1, len(_tabless(text[start:end])))


def _tabless(text: str) -> str:
    return text.replace("\t", _TAB)
