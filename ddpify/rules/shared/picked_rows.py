"""Forwards that give as many rows as a mask of their own leaves: ``return boxes[scores > 0.5]``."""

from __future__ import annotations

import ast
from typing import Final

from ddpify.ranks.modules import FunctionDefinition

_PICKS: Final = frozenset("nonzero argwhere nms batched_nms gt ge lt le".split())


def gives_picked(function: FunctionDefinition) -> bool:
    """Whether a function gives nothing but such rows."""
    nodes = [*ast.walk(function.node)]
    names: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names.setdefault(ast.unparse(target), []).append(node.value)
    given = [one.value for one in nodes if isinstance(one, ast.Return)]
    return bool(given) and all(one is not None and _is_picked(one, names) for one in given)


def _is_picked(node: ast.expr, names: dict[str, list[ast.expr]]) -> bool:
    node = _resolved(node, names)
    if not isinstance(node, ast.Subscript):
        return False
    index = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
    index = _resolved(index, names)
    if isinstance(index, ast.Call):
        name = index.func.attr if isinstance(index.func, ast.Attribute) else ast.unparse(index.func)
        return name in _PICKS
    return isinstance(index, ast.Compare)


def _resolved(node: ast.expr, names: dict[str, list[ast.expr]]) -> ast.expr:
    """What a name that is assigned once stands for."""
    held = names.get(node.id, []) if isinstance(node, ast.Name) else []
    return held[0] if len(held) == 1 else node
