"""Assignments that nothing reads, or nothing but what the edits of a conversion take away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.rules.conversion.code import RULE
from ddpify.rules.conversion.left import is_gone
from ddpify.rules.conversion.names import CHOICES, mentions

_BY_ANY_NAME: Final = ("locals", "vars", "eval", "exec")


def idle_assignment(tree: Tree, node: ast.expr) -> ast.stmt | None:
    """The assignment of an object to a name of a function that nothing reads."""
    name = _bound(tree, node)
    acts = any(isinstance(n, ast.Call | ast.Await) and n is not node for n in ast.walk(node))
    if not name or acts or any(_reads(tree.function(node), name)):
        return None
    return tree.statement(tree.site(node))


def idle_choices(facts: Facts, edits: Sequence[Edit]) -> Iterator[Finding]:
    """``prefetch = BackwardPrefetch.BACKWARD_PRE``, if edits take away what reads it."""
    for tree in facts.trees.values():
        for node, choice in mentions(tree):
            name = _bound(tree, node) if choice.partition(".")[0] in CHOICES else ""
            statement = tree.statement(tree.site(node))
            if name and statement is not None and _is_idle(tree, statement, name, edits):
                gone = Edit(How.DELETE, tree.site(statement), "")
                what = "nothing reads this choice of FSDP1 any more"
                yield Finding(RULE, gone.site, what, Severity.ERROR, (gone,))


def _bound(tree: Tree, node: ast.expr) -> str:
    """The name of a function that is bound to a value and no more; not one alone in its block."""
    statement = tree.parent(node)
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return ""
    target, function = statement.targets[0], tree.function(node)
    local = isinstance(function, ast.FunctionDef) and len(tree.block(statement)) > 1
    return target.id if local and isinstance(target, ast.Name) else ""


def _is_idle(tree: Tree, statement: ast.stmt, name: str, edits: Sequence[Edit]) -> bool:
    copied = re.compile(rf"\b{name}\b")
    if any(copied.search(e.code) for e in edits if e.site.path == tree.source.path):
        return False
    reads = _reads(tree.function(statement), name)
    return all(is_gone(tree.site(one), edits, tree) for one in reads)


def _reads(function: ast.AST, name: str) -> Iterator[ast.AST]:
    """Where a function, or one in it, may read a name: also by ``locals()`` and ``global``."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield from [node] if node.id in (name, *_BY_ANY_NAME) else []
        elif isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            yield node
