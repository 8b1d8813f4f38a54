"""Rebuild a list of statements: split lines, delete, insert, and put blocks around.

Neighbours with the same gate share one `if`; an insertion between them keeps them apart,
because a block must not swallow code that its author wanted outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import libcst as cst

from ddpify.rewrite.errors import CodeError
from ddpify.rewrite.expressions import HOLE, Filler
from ddpify.rewrite.format import new_block, new_statements
from ddpify.rewrite.layout import Layout, Statement, Unblank, inner, with_lead
from ddpify.rewrite.locate import Place
from ddpify.rewrite.pieces import (
    DEFINITIONS,
    Insertion,
    Lines,
    Piece,
    preceded,
    runs_of,
    set_off,
    stacked,
    without_deleted,
)
from ddpify.rules.base import Edit, How


@dataclass(frozen=True)
class Blocks:
    """Rebuilds the statement lists of one file."""

    layout: Layout
    edits: Mapping[cst.CSTNode, tuple[Edit, ...]]
    places: Mapping[cst.CSTNode, Place]
    inserted: Mapping[cst.CSTNode, tuple[Insertion, bool]]

    def concerns(self, statement: cst.CSTNode) -> bool:
        """Whether an edit addresses this statement or one on its line."""
        if isinstance(statement, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            return any(self.concerns(small) for small in statement.body)
        return statement in self.edits or statement in self.inserted

    def has_insertion_before(self, statement: cst.CSTNode) -> bool:
        """Whether new statements (not just imports) go above it."""
        first = _first_small(statement)
        return any(edit.how is How.BEFORE for edit in self.edits.get(first, ()))

    def starts_block(self, statement: cst.CSTNode) -> bool:
        """Whether the new imports go above it."""
        insertion = self.inserted.get(_first_small(statement))
        return insertion is not None and not insertion[1]

    def suite(self, old: cst.SimpleStatementSuite, new: cst.SimpleStatementSuite) -> cst.BaseSuite:
        """`if x: a` as a block of its own lines."""
        line = cst.SimpleStatementLine(new.body, trailing_whitespace=new.trailing_whitespace)
        was = cst.SimpleStatementLine(old.body)
        body, footer = self.rebuilt((was,), (line,))
        return cst.IndentedBlock(body=body, indent=self.layout.unit, footer=footer)

    def rebuilt(
        self, old: Sequence[cst.CSTNode], new: Sequence[cst.CSTNode]
    ) -> tuple[tuple[Statement, ...], Lines]:
        """The new list, and the comments that no statement is left to carry."""
        pieces = [piece for pair in zip(old, new, strict=True) for piece in self._pieces(*pair)]
        pieces, footer = without_deleted(pieces)
        runs = runs_of(set_off(pieces))
        body = [line for n, run in enumerate(runs) for line in self._run(run, n == 0)]
        if not body:
            return (cst.SimpleStatementLine(body=(cst.Pass(),), leading_lines=footer),), ()
        return tuple(body), footer

    def _pieces(self, old: cst.CSTNode, new: cst.CSTNode) -> Iterator[Piece]:
        assert isinstance(new, Statement)
        if not self.concerns(old):
            yield Piece((new,))
        elif isinstance(old, cst.SimpleStatementLine) and isinstance(new, cst.SimpleStatementLine):
            yield from self._split(old, new)
        else:
            yield self._piece((old,), new)

    def _split(self, old: cst.SimpleStatementLine, new: cst.SimpleStatementLine) -> Iterator[Piece]:
        """The statements of a line on as many lines as the edits need."""
        pairs = list(zip(old.body, new.body, strict=True))
        starts = [n for n in range(1, len(pairs)) if self._parts(old.body[n - 1], old.body[n])]
        for start, end in zip([0, *starts], [*starts, len(pairs)], strict=True):
            smalls = [small for _, small in pairs[start:end]]
            if len(pairs) > 1:
                smalls[-1] = smalls[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
            line = cst.SimpleStatementLine(
                smalls,
                leading_lines=() if start else new.leading_lines,
                trailing_whitespace=(
                    new.trailing_whitespace if end == len(pairs) else cst.TrailingWhitespace()
                ),
            )
            yield self._piece(old.body[start:end], line)

    def _parts(self, one: cst.CSTNode, other: cst.CSTNode) -> bool:
        """Whether the edits of two neighbours on a line part them."""
        inserted = {self.inserted[node][1]: node for node in (one, other) if node in self.inserted}
        hows = [{edit.how for edit in self.edits.get(node, ())} for node in (one, other)]
        return bool(
            (hows[0] - {How.BEFORE} or hows[1] - {How.AFTER})
            or inserted.get(True) is one
            or inserted.get(False) is other
        )

    def _piece(self, olds: Sequence[cst.CSTNode], new: Statement) -> Piece:
        """Of one statement, or of the neighbours on a line."""
        edits = tuple(edit for old in olds for edit in self.edits.get(old, ()))
        place = next((self.places[old] for old in olds if old in self.places), None)
        piece = Piece((new,), edits, place)
        code = piece.code(How.REPLACE)
        if code is not None:
            piece = replace(piece, body=self._replaced(new, code, self._room(place)))
        if piece.code(How.BODY) is not None:
            piece = replace(piece, body=_body(new))
        before = [self._insertion(one, place) for one in edits if one.how is How.BEFORE]
        after = [self._insertion(one, place) for one in edits if one.how is How.AFTER]
        for insertion, is_after in (self.inserted[old] for old in olds if old in self.inserted):
            (after if is_after else before).insert(0, insertion)
        return replace(piece, before=tuple(before), after=tuple(after))

    def _room(self, place: Place | None, more: int = 0) -> int:
        assert place is not None, "every statement with an edit has its place"
        return self.layout.room(place.indent, place.levels + more)

    def _insertion(self, edit: Edit, place: Place | None) -> Insertion:
        statements = new_statements(edit.code, self.layout, self._room(place))
        has_definition = any(isinstance(one, DEFINITIONS) for one in statements)
        gap = 1 if place is not None and place.indent else 2
        return Insertion(statements, gap if has_definition else 0)

    def _replaced(self, node: Statement, code: str, width: int) -> tuple[Statement, ...]:
        """``code`` for the statement; ``{}`` is the statement, or within one its value."""
        body = new_statements(code.replace("{}", HOLE), self.layout, width)
        body = tuple(_filled(statement, node) for statement in body)
        last = body[-1]
        if isinstance(last, cst.SimpleStatementLine) and isinstance(node, cst.SimpleStatementLine):
            last = last.with_changes(trailing_whitespace=node.trailing_whitespace)
        body = (*body[:-1], last)
        return (with_lead(body[0], (*node.leading_lines, *body[0].leading_lines)), *body[1:])

    def _run(self, run: Sequence[Piece], is_first: bool) -> list[Statement]:
        """Pieces under the same INDENT (or none), with what goes before and after them."""
        body = preceded(run[0].before, self._indented(run), is_first)
        return [*body, *stacked(run[-1].after, body[-1])]

    def _indented(self, run: Sequence[Piece]) -> list[Statement]:
        body: list[Statement] = []
        for code, group in groupby(run, key=lambda piece: piece.code(How.GATE)):
            pieces = list(group)
            statements = [statement for piece in pieces for statement in piece.body]
            if code is not None:
                under = pieces[0].code(How.INDENT) is not None
                width = self._room(pieces[0].place, int(under))
                statements = [self._block(f"if {code}:", statements, width, pieces[0].place)]
            body.extend(statements)
        head = run[0].code(How.INDENT)
        if head is None:
            return body
        head = head.strip().removesuffix(":") + ":"
        return [self._block(head, body, self._room(run[0].place), run[0].place)]

    def _block(
        self, head: str, body: Sequence[Statement], width: int, place: Place | None
    ) -> Statement:
        """The statements under a new head, which takes over the comments on top of them."""
        inside = [with_lead(body[0], ()), *body[1:]]
        if place is None or not place.indent:
            inside = [inner(Unblank(), statement) for statement in inside]
        block = cst.IndentedBlock(body=inside, indent=self.layout.unit)
        opened = new_block(head, self.layout, width).with_changes(body=block)
        return with_lead(opened, (*body[0].leading_lines, *opened.leading_lines))


class _StatementFiller(cst.CSTTransformer):
    """Puts a statement where ``{}`` is a whole line."""

    def __init__(self, statement: Statement) -> None:
        super().__init__()
        self._statement = with_lead(statement, ())

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Statement:
        match original_node.body:
            case [cst.Expr(value=cst.Name(value=name))] if name == HOLE:
                return self._statement
        return updated_node


def _filled(pattern: Statement, node: Statement) -> Statement:
    """``{}`` on a line of its own is the statement, elsewhere the value of the statement."""
    filled = inner(_StatementFiller(node), pattern)
    match node:
        case cst.SimpleStatementLine(body=[cst.Expr(value=value)]):
            filled = inner(Filler(value), filled)
    if HOLE in cst.Module(body=(filled,)).code:
        raise CodeError("{} within a statement can only stand for an expression statement")
    return filled


def _body(node: Statement) -> tuple[Statement, ...]:
    """What is in a `with`, or an `if` alone, with the comments above, behind it and at its end."""
    if not isinstance(node, cst.With | cst.If) or getattr(node, "orelse", None) is not None:
        raise CodeError("only a with or an if statement becomes what is in it")
    lines = tuple(node.leading_lines)
    if isinstance(node.body, cst.SimpleStatementSuite):
        return (cst.SimpleStatementLine(node.body.body, leading_lines=lines),)
    assert isinstance(node.body, cst.IndentedBlock)
    comment = node.body.header.comment
    body = [one for one in node.body.body if isinstance(one, Statement)]
    said = (cst.EmptyLine(comment=comment),) if comment is not None else ()
    body[0] = with_lead(body[0], (*lines, *said, *body[0].leading_lines))
    body[-1] = with_lead(body[-1], (*body[-1].leading_lines, *node.body.footer))
    return tuple(body)


def _first_small(statement: cst.CSTNode) -> cst.CSTNode:
    return statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else statement
