"""Addressed statements as pieces, and what may happen between two of them.

Blank lines and comments belong to the statement below them in libcst, to the reader they
belong to either side; here it is decided which side keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import libcst as cst

from ddpify.rewrite.layout import Statement, is_blank, with_lead
from ddpify.rewrite.locate import Place
from ddpify.rules.base import Edit, How

Lines: TypeAlias = tuple[cst.EmptyLine, ...]
DEFINITIONS = (cst.FunctionDef, cst.ClassDef)
_BLANK = cst.EmptyLine(indent=False)


@dataclass(frozen=True)
class Insertion:
    """New statements with at least ``gap`` blank lines around them."""

    statements: tuple[Statement, ...]
    gap: int = 0

    def gap_to(self, following: Statement) -> int:
        """Blank lines below; a definition wants two below an import."""
        starts_block = self.gap and _is_import(self.statements[-1])
        return 2 if starts_block and isinstance(following, DEFINITIONS) else self.gap


@dataclass(frozen=True)
class Piece:
    """One addressed statement (or a stretch of untouched ones) on its own lines."""

    body: tuple[Statement, ...]
    edits: tuple[Edit, ...] = ()
    place: Place | None = None
    before: tuple[Insertion, ...] = ()
    after: tuple[Insertion, ...] = ()

    def code(self, how: How) -> str | None:
        """Of the edit of this kind, None without one."""
        return next((edit.code for edit in self.edits if edit.how is how), None)

    @property
    def wrapper(self) -> str | None:
        """Code of the INDENT around it."""
        return self.code(How.INDENT)

    @property
    def is_deleted(self) -> bool:
        return any(edit.how is How.DELETE for edit in self.edits)


def runs_of(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Stretches with the same INDENT and no insertion within."""
    runs: list[list[Piece]] = []
    for piece in pieces:
        last = runs[-1][-1] if runs else None
        if last and not (last.after or piece.before) and last.wrapper == piece.wrapper:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def preceded(
    insertions: Sequence[Insertion], body: Sequence[Statement], is_first: bool
) -> list[Statement]:
    """New statements above the comments that touch the first statement."""
    if not insertions:
        return list(body)
    new = stacked(insertions, None)
    lines = tuple(body[0].leading_lines)
    cut = max((n + 1 for n, line in enumerate(lines) if is_blank(line)), default=0)
    head = lines[:cut] if is_first else _pad(lines[:cut], insertions[0].gap)
    new[0] = with_lead(new[0], (*head, *new[0].leading_lines))
    tail = _pad(lines[cut:], insertions[-1].gap_to(body[0]))
    return [*new, with_lead(body[0], tail), *body[1:]]


def stacked(insertions: Sequence[Insertion], above: Statement | None) -> list[Statement]:
    """One insertion below the other, imports set off from other code."""
    result: list[Statement] = []
    gap = 0
    for insertion in insertions:
        first, *more = insertion.statements
        if above is not None:
            is_change = _is_import(above) and not _is_import(first)
            gap = max(gap, insertion.gap, int(is_change))
        result += [with_lead(first, _pad(first.leading_lines, gap)), *more]
        above, gap = insertion.statements[-1], insertion.gap
    return result


def set_off(pieces: Sequence[Piece]) -> list[Piece]:
    """The gap below the insertions that want one."""
    result = list(pieces)
    for number, piece in enumerate(result[:-1]):
        following = result[number + 1]
        first, *more = following.body
        gap = piece.after[-1].gap_to(first) if piece.after else 0
        body = (with_lead(first, _pad(first.leading_lines, gap)), *more)
        result[number + 1] = replace(following, body=body)
    return result


def without_deleted(pieces: Sequence[Piece]) -> tuple[list[Piece], Lines]:
    """The pieces that are left, each with the comments of those deleted above it."""
    left: list[Piece] = []
    carried: Lines = ()
    for piece in pieces:
        if piece.is_deleted:
            insertions = (*piece.before, *piece.after)
            new = [statement for insertion in insertions for statement in insertion.statements]
            lines = tuple(piece.body[0].leading_lines)
            if not new:
                carried = _above(carried, lines)
                continue
            piece = Piece((with_lead(new[0], (*lines, *new[0].leading_lines)), *new[1:]))
        first = piece.body[0]
        first = with_lead(first, _above(carried, tuple(first.leading_lines)))
        left.append(replace(piece, body=(first, *piece.body[1:])))
        carried = ()
    return left, carried if not all(is_blank(line) for line in carried) else ()


def _above(carried: Lines, lines: Lines) -> Lines:
    """Both, but the blank lines on either side of a gone statement only once."""
    if all(is_blank(line) for line in carried):
        return _pad(lines, len(carried))
    return (*carried, *lines)


def _pad(lines: Sequence[cst.EmptyLine], gap: int) -> Lines:
    """``lines`` with at least ``gap`` blank ones on top."""
    blank = next((n for n, line in enumerate(lines) if not is_blank(line)), len(lines))
    return (*(_BLANK for _ in range(gap - blank)), *lines)


def _is_import(statement: Statement) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    return all(isinstance(small, cst.Import | cst.ImportFrom) for small in statement.body)
