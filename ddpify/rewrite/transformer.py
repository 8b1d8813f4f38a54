"""One pass over one file: every node with edits is rebuilt when its children are done."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import libcst as cst

from ddpify.rewrite.arguments import alias, with_argument, with_names
from ddpify.rewrite.blocks import Blocks
from ddpify.rewrite.expressions import quoted_for, replaced, with_entries
from ddpify.rewrite.format import new_statements, refit
from ddpify.rewrite.imports import ImportPlan
from ddpify.rewrite.layout import Layout, Statement, is_blank, with_lead
from ddpify.rewrite.locate import Located
from ddpify.rewrite.pieces import Insertion
from ddpify.rules.base import How
from ddpify.todo import is_guard


class Rewriter(cst.CSTTransformer):
    """Applies located edits and planned imports; what has no edit inside is not visited."""

    def __init__(
        self, located: Located, layout: Layout, imports: ImportPlan, module: cst.Module
    ) -> None:
        super().__init__()
        self._located = located
        self._layout = layout
        small = module_statements(module)
        self._names = {small[number]: names for number, names in imports.extended.items()}
        inserted = _inserted(imports, layout, small)
        self._blocks = Blocks(layout, located.statements, located.places, inserted)

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.SimpleStatementLine) and self._is_extended(node):
            return True
        return node in self._located.live or isinstance(node, cst.Module)

    def on_leave(  # type: ignore[override]  # one node in, one node out
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        old, new = original_node, updated_node
        if isinstance(new, cst.BaseExpression) and old in self._located.expressions:
            return self._expression(old, new)
        if isinstance(new, cst.ImportFrom) and old in self._names:
            return with_names(new, [alias(*names) for names in self._names[old]])
        if isinstance(old, Statement) and isinstance(new, Statement):
            return self._fitted(old, new)
        match old, new:
            case cst.SimpleStatementSuite(), cst.SimpleStatementSuite():
                return self._blocks.suite(old, new) if self._blocks.concerns(old) else new
            case cst.IndentedBlock(), cst.IndentedBlock():
                return self._block(old, new)
            case cst.Module(), cst.Module():
                return self._module(old, new)
        return new

    def _expression(self, old: cst.CSTNode, new: cst.BaseExpression) -> cst.BaseExpression:
        place = self._located.places[old]
        edits = self._located.expressions[old]
        for edit in edits:
            if edit.how is How.ARGUMENT and isinstance(new, cst.Call):
                new = with_argument(new, edit.name, quoted_for(edit.code, place.quote))
            if edit.how is How.FIRST and isinstance(new, cst.Call):
                new = replaced(new.args[0].value, "{}", old, place.parent, place.is_tight)
        codes = [edit.code for edit in edits if edit.how is How.REPLACE]
        codes.sort(key=lambda code: "{}" in code)  # what takes its place, then what goes around it
        for code in (*with_entries(edits), *codes):
            code = quoted_for(code, place.quote)
            new = replaced(new, code, old, place.parent, place.is_tight)
        return new

    def _fitted(self, old: Statement, new: Statement) -> Statement:
        place = self._located.touched.get(old)
        if not (place or self._is_extended(old)) or _shares_line(old):
            return new
        room = self._layout.room(place.indent, place.levels) if place else self._layout.room("")
        return refit(old, new, self._layout, room)

    def _is_extended(self, statement: Statement) -> bool:
        if not self._names or not isinstance(statement, cst.SimpleStatementLine):
            return False
        return any(small in self._names for small in statement.body)

    def _block(self, old: cst.IndentedBlock, new: cst.IndentedBlock) -> cst.IndentedBlock:
        if not self._concerns(old.body):
            return new
        body, footer = self._blocks.rebuilt(old.body, new.body)
        return new.with_changes(body=body, footer=(*footer, *new.footer))

    def _module(self, old: cst.Module, new: cst.Module) -> cst.Module:
        if not self._concerns(old.body):
            return new
        header, lines = list(new.header), list(new.body)
        starts_block = self._blocks.starts_block(old.body[0])
        if self._blocks.has_insertion_before(old.body[0]) and not starts_block:
            header, attached = _split_header(header)
            lines[0] = with_lead(lines[0], attached)
        body, footer = self._blocks.rebuilt(old.body, lines)
        if header and not is_blank(header[-1]) and starts_block:
            header.append(cst.EmptyLine(indent=False))
        return new.with_changes(header=header, body=body, footer=(*footer, *new.footer))

    def _concerns(self, statements: Sequence[cst.CSTNode]) -> bool:
        return any(self._blocks.concerns(statement) for statement in statements)


def _shares_line(statement: Statement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and len(statement.body) > 1


def module_statements(module: cst.Module) -> list[cst.CSTNode]:
    """The statements of a module as ``Source.parse`` counts them: each of a line for itself."""
    return [
        small
        for statement in module.body
        for small in (
            statement.body if isinstance(statement, cst.SimpleStatementLine) else (statement,)
        )
        if not (isinstance(small, cst.Raise) and is_guard(_parsed(module, small)))
    ]


def _parsed(module: cst.Module, statement: cst.CSTNode) -> ast.stmt:
    return ast.parse(module.code_for_node(statement)).body[0]


def _inserted(
    imports: ImportPlan, layout: Layout, small: Sequence[cst.CSTNode]
) -> Mapping[cst.CSTNode, tuple[Insertion, bool]]:
    """The new import statements, by the statement they follow or, at the top, precede."""
    if not imports.lines:
        return {}
    code = "\n".join(imports.lines)
    gap = 1 if imports.block.is_spaced else 0
    insertion = Insertion(new_statements(code, layout, layout.room("")), gap)
    position = imports.block.position
    return {small[max(position - 1, 0)]: (insertion, position > 0)}


def _split_header(
    header: Sequence[cst.EmptyLine],
) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The head of a file, and the comments that touch its first statement.

    ``#!`` and the encoding stay at the top whatever they touch.
    """
    cut = max((n + 1 for n, line in enumerate(header) if is_blank(line)), default=0)
    for number, line in enumerate(header[:2]):
        comment = line.comment.value if line.comment else ""
        if comment.startswith("#!") or "coding" in comment:
            cut = max(cut, number + 1)
    return list(header[:cut]), list(header[cut:])
