"""Which libcst node each edit addresses, found by its ``ast`` span.

The two trees agree on positions but for what ``ast`` counts as part of a node: the
parentheses of a tuple or a generator, and those of a call around its lone generator.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from ddpify.plan import PlannedEdit
from ddpify.rewrite.errors import CodeError, RewriteError
from ddpify.rewrite.expressions import is_expression
from ddpify.rules.base import Edit, How
from ddpify.source import Source, Span

_LINES = (cst.SimpleStatementLine, cst.SimpleStatementSuite, cst.BaseCompoundStatement)
_WHOLE = (cst.SimpleStatementLine, cst.IndentedBlock)  # unlike a function's, their lines are all
_AROUND = (How.GATE, How.INDENT)
_OF_VALUES = (How.ARGUMENT, How.ENTRY, How.FIRST)


@dataclass(frozen=True)
class Place:
    """Where a node stands: its parent, its line's indentation, and what is put around it.

    ``levels`` are the gates and indents of the statements around it: not a statement's own,
    but for a touched statement its own too. ``is_tight``: a word or number touches it.
    ``quote`` is that of the f-string it stands in.
    """

    parent: cst.CSTNode
    indent: str
    levels: int
    is_tight: bool = False
    quote: str = ""


@dataclass(frozen=True)
class Located:
    """The edits by node; ``touched`` are the statements whose own text changes."""

    expressions: Mapping[cst.CSTNode, tuple[Edit, ...]]
    statements: Mapping[cst.CSTNode, tuple[Edit, ...]]
    places: Mapping[cst.CSTNode, Place]
    touched: Mapping[cst.CSTNode, Place]
    live: frozenset[cst.CSTNode]


def locate(module: cst.Module, source: Source, planned: Sequence[PlannedEdit]) -> Located:
    """Find every edit's node. Raises RewriteError where there is none."""
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    finder = _Finder(source, wrapper.resolve(PositionProvider), planned)
    wrapper.module.visit(finder)
    missing = [one for one in planned if one.edit not in finder.found]
    if missing:
        edit = missing[0].edit
        what = f"no {'expression' if edit.how is How.ARGUMENT else 'place'} for {edit.how.value}"
        line = edit.site.span.line
        raise RewriteError(source.path, (missing[0].rule,), f"{what} {edit.code!r}", line)
    return finder.located()


@dataclass
class _Open:
    """A node being visited."""

    node: cst.CSTNode
    levels: int


@dataclass
class _Marks:
    expressions: dict[cst.CSTNode, tuple[Edit, ...]] = field(default_factory=dict)
    statements: dict[cst.CSTNode, tuple[Edit, ...]] = field(default_factory=dict)
    places: dict[cst.CSTNode, Place] = field(default_factory=dict)
    touched: dict[cst.CSTNode, Place] = field(default_factory=dict)
    live: set[cst.CSTNode] = field(default_factory=set)


class _Finder(cst.CSTVisitor):
    def __init__(
        self,
        source: Source,
        ranges: Mapping[cst.CSTNode, CodeRange],
        planned: Sequence[PlannedEdit],
    ) -> None:
        super().__init__()
        self._source = source
        self._ranges = ranges
        self._wanted: dict[Span, tuple[Edit, ...]] = {}
        for one in planned:
            span = one.edit.site.span
            self._wanted[span] = (*self._wanted.get(span, ()), one.edit)
        self._lines = sorted(span.line for span in self._wanted)
        self._open: list[_Open] = []
        self._marks = _Marks()
        self._dropped: set[cst.CSTNode] = set()
        self.found: set[Edit] = set()

    def located(self) -> Located:
        marks = self._marks
        return Located(
            marks.expressions,
            marks.statements,
            marks.places,
            marks.touched,
            frozenset(marks.live),
        )

    def on_visit(self, node: cst.CSTNode) -> bool:
        own = 0
        if isinstance(node, cst.BaseExpression):
            self._expression(node)
        elif isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            own = self._statement(node)
        levels = self._open[-1].levels if self._open else 0
        self._open.append(_Open(node, levels + own))
        return not isinstance(node, _WHOLE) or self._holds_edits(node)

    def _holds_edits(self, node: cst.CSTNode) -> bool:
        at = self._ranges[node]
        first = bisect_left(self._lines, at.start.line)
        return first < len(self._lines) and self._lines[first] <= at.end.line

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self._open.pop()

    def _expression(self, node: cst.BaseExpression) -> None:
        edits = tuple(
            edit
            for edit in self._edits(self._span(node))
            if edit.how in _OF_VALUES or (edit.how is How.REPLACE and is_expression(edit.code))
        )
        if not edits or (not isinstance(node, cst.Call) and edits[0].how is How.ARGUMENT):
            return
        self._marks.expressions[node] = edits
        if isinstance(node, cst.Call):
            lost = {one.name for one in edits if one.how is How.ARGUMENT and "{}" not in one.code}
            args = (arg for arg in node.args if arg.keyword and arg.keyword.value in lost)
            self._dropped.update(args)
        self._mark(node, edits, self._is_tight(node))
        line = next(one.node for one in reversed(self._open) if isinstance(one.node, _LINES))
        self._marks.touched[line] = self._place(line)

    def _statement(self, node: cst.BaseSmallStatement | cst.BaseCompoundStatement) -> int:
        """Mark it; the number of blocks that its edits put around it."""
        if self._is_elif(node):
            return 0
        edits = tuple(
            edit
            for edit in self._edits(self._span(node))
            if edit.how not in (*_OF_VALUES, How.REPLACE)
            or (edit.how is How.REPLACE and not self._is_for_value(node, edit))
        )
        if edits:
            self._marks.statements[node] = edits
            self._mark(node, edits)
        return sum(edit.how in _AROUND for edit in edits)

    def _is_for_value(self, node: cst.CSTNode, edit: Edit) -> bool:
        """Whether the statement's expression, which has the same span, takes the edit."""
        if not isinstance(node, cst.Expr) or not is_expression(edit.code):
            return False
        return self._span(node.value) == edit.site.span

    def _is_elif(self, node: cst.CSTNode) -> bool:
        parent = self._open[-1].node
        return isinstance(parent, cst.If) and parent.orelse is node

    def _mark(self, node: cst.CSTNode, edits: tuple[Edit, ...], is_tight: bool = False) -> None:
        if any(one.node in self._dropped for one in self._open):
            raise CodeError(f"line {edits[0].site.span.line}: inside a value that is replaced")
        self.found.update(edits)
        self._marks.live.add(node)
        self._marks.live.update(one.node for one in self._open)
        self._marks.places[node] = self._place(node, is_tight)

    def _place(self, node: cst.CSTNode, is_tight: bool = False) -> Place:
        line = self._ranges[node].start.line
        text = self._source.lines[line - 1]
        indent = text[: len(text) - len(text.lstrip(" \t\f"))]
        strings = (one.node for one in self._open if isinstance(one.node, cst.FormattedString))
        quote = "".join(string.quote for string in strings)
        parent, levels = self._open[-1].node, self._open[-1].levels
        if isinstance(parent, cst.SimpleStatementSuite):
            levels += 1  # it will be a block
        return Place(parent, indent, levels, is_tight, quote)

    def _edits(self, span: Span) -> tuple[Edit, ...]:
        return self._wanted.get(span, ())

    def _span(self, node: cst.CSTNode) -> Span:
        """As ``ast`` gives it."""
        at = self._ranges[node]
        start, end = at.start, at.end
        if isinstance(node, cst.Tuple | cst.GeneratorExp) and node.lpar:
            start, end = self._ranges[node.lpar[-1]].start, self._ranges[node.rpar[0]].end
        elif isinstance(node, cst.GeneratorExp):
            return Span(start.line, start.column - 1, end.line, end.column + 1)
        return Span(start.line, start.column, end.line, end.column)

    def _is_tight(self, node: cst.BaseExpression) -> bool:
        at = self._ranges[node]
        start, end = at.start, at.end
        if node.lpar:
            start, end = self._ranges[node.lpar[0]].start, self._ranges[node.rpar[-1]].end
        before = self._source.lines[start.line - 1][: start.column][-1:]
        after = self._source.lines[end.line - 1][end.column :][:1]
        return any(one.isalnum() or one == "_" for one in (before, after))
