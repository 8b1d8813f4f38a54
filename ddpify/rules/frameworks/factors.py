"""What the factor of a schedule reads of the function that it stands in."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RankCall, RankValue
from ddpify.rules.shared.written import text


def enclosed(plan: RankCall) -> Iterator[RankValue]:
    """What the function in which a schedule is made was given, where a function in it, which gives
    the factor, reads that."""
    caller, function = (plan.stack or (None,))[-1], plan.function
    if caller is None or function is None or caller.target is not function:
        return
    inner = (ast.FunctionDef, ast.Lambda)
    nested = [n for n in ast.walk(function.node) if isinstance(n, inner) and n is not function.node]
    names = _read(nested)
    for node in ast.walk(function.node):
        if isinstance(node, ast.Assign) and not names.isdisjoint(map(text, node.targets)):
            names |= _read([node.value])
    for position, name in enumerate(function.parameters[caller.receiver is not None :]):
        value = caller.arg(position, name) if name in names else None
        if value is not None:
            yield value


def _read(nodes: Iterable[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
