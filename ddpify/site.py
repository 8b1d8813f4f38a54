"""Places in source files. Apart from ``source``, so that to speak of one no parser is loaded."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A stretch of decoded text: lines count from 1, columns from 0 in characters.

    Equal to what libcst's ``PositionProvider`` gives for the same node.
    """

    line: int
    column: int
    end_line: int
    end_column: int


class Site(NamedTuple):
    """A place in the project: file (posix path relative to the project root) and span.

    A tuple: sites are keys of the analysis' largest tables, and those are hashed without Python.
    """

    path: str
    span: Span

    def within(self, outer: Site) -> bool:
        """Whether this place lies in ``outer``."""
        a, b = self.span, outer.span
        return (
            self.path == outer.path
            and (b.line, b.column) <= (a.line, a.column)
            and (a.end_line, a.end_column) <= (b.end_line, b.end_column)
        )

    def until(self, last: Site) -> Site:
        """The place from the beginning of this one to the end of a later one."""
        a, b = self.span, last.span
        return Site(self.path, Span(a.line, a.column, b.end_line, b.end_column))

    def __str__(self) -> str:
        return f"{self.path}:{self.span.line}"
