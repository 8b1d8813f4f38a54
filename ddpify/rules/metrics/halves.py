"""Quotients after a loop of what can be added up over the ranks and what is not understood."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TypeGuard

from ddpify.facts.events import LoopEnd
from ddpify.facts.model import Facts


def halves(facts: Facts, end: LoopEnd, others: Collection[str]) -> frozenset[str]:
    """The sums that meet one of the others there: reduced alone they would be of unlike samples.

    ``100 * correct / total`` where only ``total`` is known for a count of samples.
    """
    tree = facts.tree(end.loop.site)
    loop = tree.statement(end.loop.site)
    if loop is None or not others:
        return frozenset()
    divisions = (node for node in ast.walk(tree.function(loop)) if _divides(node))
    later = (node for node in divisions if end.loop.site.span.end_line < node.lineno)
    pairs = [(_parts(node.left), _parts(node.right)) for node in later]
    met = (b for a, b in (*pairs, *((b, a) for a, b in pairs)) if not a.isdisjoint(others))
    return frozenset(end.sums) & frozenset().union(*met)


def _divides(node: ast.AST) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)


def _parts(node: ast.expr) -> frozenset[str]:
    """The names and attributes in an expression."""
    found = (part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute)))
    return frozenset(map(ast.unparse, found))
