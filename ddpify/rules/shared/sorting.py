"""Loops over what is sorted by numbers that each rank has for itself."""

from __future__ import annotations

import ast
from typing import Final

from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.averaged_by_hand import is_gradient

_NUMBERS: Final = frozenset("item norm sum mean abs max min std var tolist".split())
_SORTED: Final = "builtins.sorted"


def sorted_by_numbers(run: Run, loop: RankLoop) -> bool:
    """``sorted(parameters, key=lambda p: p.grad.norm())`` before the gradients are averaged, or by
    the numbers of tensors of which each rank has its own."""
    made = loop.over.made_by(_SORTED) if loop.over is not None else None
    call = made.call if made is not None else _in_place(run, loop)
    key = call.kwargs.get("key") if call is not None else None
    body = _body(key) if key is not None else None
    if call is None or body is None:
        return False
    given = call.receiver if call.receiver is not None else (*call.args, None)[0]
    own = given is not None and (_is_own(given) or is_gradient(given))
    return _reads(body, gradients=True) or (own and _reads(body))


def _in_place(run: Run, loop: RankLoop) -> RankCall | None:
    """``parameters.sort(key=…)`` of the list that a loop goes through."""
    things = set(loop.over.things) if loop.over is not None else set()
    for call in run.methods("sort"):
        own = call.receiver.things if call.receiver is not None else ()
        if not things.isdisjoint(own):
            return call
    return None


def _body(key: RankValue) -> ast.AST | None:
    """What computes a key of an element."""
    things: tuple[RankThing, ...] = key.things
    nodes = [thing.info.node for thing in things if thing.kind == "function"]
    return nodes[0] if len(nodes) == len(things) == 1 else None


def _reads(body: ast.AST, gradients: bool = False) -> bool:
    """Whether a key is computed from the numbers of a tensor."""
    for node in ast.walk(body):
        asked = node.func if isinstance(node, ast.Call) else None
        numbers = isinstance(asked, ast.Attribute) and asked.attr in _NUMBERS
        if numbers and (not gradients or _of_gradient(asked)):
            return True
    return False


def _of_gradient(node: ast.expr | None) -> bool:
    parts = ast.walk(node) if node is not None else ()
    return any(isinstance(one, ast.Attribute) and one.attr == "grad" for one in parts)


def _is_own(value: RankValue) -> bool:
    """Whether the tensors differ between the ranks."""
    items = value.items or ()
    return any(item.local for item in items if item.things)
