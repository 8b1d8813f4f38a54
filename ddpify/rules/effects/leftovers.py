"""What a statement leaves behind besides its output: the other ranks would miss it."""

from __future__ import annotations

import ast

from ddpify.facts.marks_left import changes, leaves_marks
from ddpify.facts.model import Facts
from ddpify.facts.scopes import FunctionInfo
from ddpify.source import Site


def leaves_more(facts: Facts, statement: Site) -> bool:
    """Whether a statement also changes what ranks go on with: ``print(net.load_state_dict(s))``."""
    tree = facts.tree(statement)
    node = tree.statement(statement)
    if not isinstance(node, ast.Expr):
        return False
    effects = {effect.call.site for effect in facts.effects}
    inner = (n for n in ast.walk(node) if isinstance(n, ast.expr))
    if any(_changes(n) for n in inner if tree.site(n) not in effects):
        return True
    return any(_leaves_marks(facts, info) for info in _entered(facts, statement))


def _changes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "next":
        return isinstance(node.args[0], ast.Name | ast.Attribute) if node.args else False
    return isinstance(node, ast.NamedExpr) or changes(node, set())


def _entered(facts: Facts, statement: Site) -> set[FunctionInfo]:
    """The functions of the project that run while the statement does."""
    inside = (
        call
        for call in facts.calls
        if call.target is not None
        and any(site.within(statement) for site in (call.site, *call.where.stack))
    )
    return {call.target for call in inside if call.target is not None} - facts.helpers


def _leaves_marks(facts: Facts, info: FunctionInfo) -> bool:
    """A constructor may set what is its own."""
    name = getattr(info.node, "name", "")
    if name != "__init__":
        return leaves_marks(info.node, facts.trees.values())
    own = {arg.arg for arg in info.node.args.args[:1]}
    return any(changes(node, own) for node in ast.walk(info.node))
