"""Shell text that stands inside another file, and the way back to where it stands.

What reads shell sees the text as a shell would get it (Make has filled in its variables, prompts
are gone); findings and edits are then put where the characters came from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ddpify.launchers.script import line_starts
from ddpify.rules.base import Edit, Finding
from ddpify.source import Site, Span

Chars = list[tuple[str, int, int]]  # a character of the shell text; where it stands in the file


@dataclass(frozen=True)
class EmbeddedPiece:
    """A stretch of shell in the file ``path``.

    ``starts`` and ``ends`` are the offsets in the file of every character of ``text``, -1 for
    what was put in front of it to be known; ``$$`` in a makefile is one character that stands
    on two. ``code`` turns new shell text into text of the file.
    ``lines``: a line can be put above a command. ``brief``: people read it more than they
    run it. ``certain``: it is shell, not text that looks like it.
    """

    path: str
    file: str
    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    code: Callable[[str], str] = str
    lines: bool = True
    brief: bool = False
    certain: bool = True

    @classmethod
    def whole(cls, path: str, file: str) -> EmbeddedPiece:
        """A file that is shell from end to end."""
        return cls(path, file, file, range(len(file)), range(1, len(file) + 1))

    @classmethod
    def of(cls, path: str, file: str, chars: Chars) -> EmbeddedPiece:
        """The text that ``chars`` make up."""
        text = "".join(char for char, _, _ in chars)
        return cls(path, file, text, [one for _, one, _ in chars], [one for _, _, one in chars])

    def placed(self, finding: Finding) -> Finding:
        """``finding``, made of ``text``, as one of the file."""
        return replace(
            finding,
            site=self.site(finding.site),
            message=self.code(finding.message),
            fix=tuple(self._edit(edit) for edit in finding.fix),
        )

    def site(self, site: Site) -> Site:
        """The place in the file of a place in ``text``."""
        begin, end = (
            self._lines[line - 1] + column
            for line, column in (
                (site.span.line, site.span.column),
                (site.span.end_line, site.span.end_column),
            )
        )
        first = self.starts[begin] if begin < len(self.starts) else self.ends[-1]
        return Site(self.path, self._span(first, first if begin == end else self.ends[end - 1]))

    def holds(self, site: Site) -> bool:
        """Whether a place in ``text`` is one in the file too."""
        return self.starts[self._lines[site.span.line - 1] + site.span.column] >= 0

    def _edit(self, edit: Edit) -> Edit:
        return replace(edit, site=self.site(edit.site), code=self.code(edit.code))

    def _span(self, begin: int, end: int) -> Span:
        return Span(*_position(self._file_lines, begin), *_position(self._file_lines, end))

    @cached_property
    def _lines(self) -> tuple[int, ...]:
        return line_starts(self.text)

    @cached_property
    def _file_lines(self) -> tuple[int, ...]:
        return line_starts(self.file)


def _position(starts: tuple[int, ...], at: int) -> tuple[int, int]:
    line = bisect_right(starts, at)
    return line, at - starts[line - 1]
