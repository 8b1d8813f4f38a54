"""Files that are not rewritten as Python: new ones, and launchers changed span by span."""

from __future__ import annotations

from collections.abc import Sequence

from ddpify.names import HEADER_PREFIX
from ddpify.plan import Change, PlannedEdit
from ddpify.rewrite.errors import RewriteError
from ddpify.rewrite.format import whole
from ddpify.rewrite.layout import Style
from ddpify.source import Source, Span


def new_file(
    path: str, planned: Sequence[PlannedEdit], old: Source | None, style: Style
) -> Change | None:
    """The file as its edit gives it; None where it is there already.

    A copy of the helpers is laid out as the project's settings say, where they say anything.
    """
    code = planned[0].edit.code
    laid_out = code.startswith(HEADER_PREFIX) and not style.fills_lines
    text = whole(code, style) if laid_out else code
    after = text.encode("utf-8")
    if old is not None and (old.text == text or old.raw == after):
        return None
    return Change(path, old.raw if old else None, after, tuple(planned))


def changed_text(source: Source, planned: Sequence[PlannedEdit]) -> str:
    """The text with every span replaced, from the back so that positions hold."""
    text = source.text
    starts = line_starts(text)
    for one in sorted(planned, key=lambda each: each.edit.site.span, reverse=True):
        begin, end = _offsets(source, starts, one)
        text = text[:begin] + one.edit.code.replace("\n", source.newline) + text[end:]
    return text


def line_starts(text: str) -> tuple[int, ...]:
    """Offset of every line, by the line ends that ``Source.lines`` knows."""
    starts = [0]
    for index, character in enumerate(text):
        if character == "\n" or (character == "\r" and text[index + 1 : index + 2] != "\n"):
            starts.append(index + 1)
    return tuple(starts)


def _offsets(source: Source, starts: Sequence[int], one: PlannedEdit) -> tuple[int, int]:
    span: Span = one.edit.site.span
    lines = (span.line, span.end_line)
    columns = (span.column, span.end_column)
    for line, column in zip(lines, columns, strict=True):
        if not 0 < line <= len(source.lines) or column > len(source.lines[line - 1]):
            raise RewriteError(source.path, (one.rule,), "the span lies outside", span.line)
    return starts[lines[0] - 1] + columns[0], starts[lines[1] - 1] + columns[1]
