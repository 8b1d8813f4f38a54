"""Loops over what is sorted by numbers that each rank has for itself."""

from __future__ import annotations

import ast
from typing import Final

from ddpify.ranks.model import RankLoop, RankThing, RankValue

_NUMBERS: Final = frozenset("item norm sum mean abs max min std var tolist".split())
_SORTED: Final = "builtins.sorted"


def sorted_by_numbers(loop: RankLoop) -> bool:
    """``sorted(parameters, key=lambda p: p.grad.norm())`` before the gradients are averaged, or by
    the numbers of tensors of which each rank has its own."""
    made = loop.over.made_by(_SORTED) if loop.over is not None else None
    call = made.call if made is not None else None
    key = call.kwargs.get("key") if call is not None else None
    body = _body(key) if key is not None else None
    if call is None or body is None or not call.args:
        return False
    return _reads(body, gradients=True) or (_reads(body) and _is_own(call.args[0]))


def _body(key: RankValue) -> ast.AST | None:
    """What computes a key of an element."""
    things: tuple[RankThing, ...] = key.things
    nodes = [thing.info.node for thing in things if thing.kind == "function"]
    return nodes[0] if len(nodes) == len(things) == 1 else None


def _reads(body: ast.AST, gradients: bool = False) -> bool:
    """Whether a key is computed from the numbers of a tensor."""
    for node in ast.walk(body):
        asks = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if asks and node.func.attr in _NUMBERS and (not gradients or _of_gradient(node.func)):
            return True
    return False


def _of_gradient(node: ast.Attribute) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "grad" for one in ast.walk(node))


def _is_own(value: RankValue) -> bool:
    """Whether the tensors differ between the ranks."""
    items = value.items or ()
    return any(item.local for item in items if item.things)
