"""Loops over what is sorted by numbers that each rank has for itself."""

from __future__ import annotations

import ast
from typing import Final

from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.origins import CLOCK, DATA, IDENTITY, RANDOM
from ddpify.ranks.run import Run

_NUMBERS: Final = frozenset("item norm sum mean abs max min".split())
_OWN: Final = {CLOCK, RANDOM, DATA, *IDENTITY}
_SORTED: Final = "builtins.sorted"


def sorted_by_numbers(run: Run, loop: RankLoop) -> bool:
    """``sorted(parameters, key=lambda p: p.grad.norm())`` before the gradients are averaged."""
    made = loop.over.made_by(_SORTED) if loop.over is not None else None
    call = made.call if made is not None else _in_place(run, loop)
    key = call.kwargs.get("key") if call is not None else None
    if call is not None and made is not None and _is_own(call, key):
        return True
    body = _body(key) if key is not None else None
    return body is not None and any(map(_is_of_gradient, ast.walk(body)))


def _is_own(call: RankCall, key: RankValue | None) -> bool:
    """``sorted(seconds, key=seconds.get)`` of times that each rank has measured."""
    if key is None:
        return False
    body = _body(key)
    timed = call.result is not None and any(one.kind == CLOCK for one in call.result.all_origins)
    looked = body is not None and any(map(_looks_up, ast.walk(body)))
    return (timed and looked) or any(one.kind in _OWN for one in key.origins)


def _looks_up(node: ast.AST) -> bool:
    """``item[1]`` of the items of a dict, ``spent[name]``."""
    if not isinstance(node, ast.Subscript):
        return False
    place = ast.unparse(node.slice)
    return place in ("1", "-1") or isinstance(node.slice, ast.Name)


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


def _is_of_gradient(node: ast.AST) -> bool:
    """``p.grad.norm()``: a number of this rank's."""
    asked = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(asked, ast.Attribute)
        and asked.attr in _NUMBERS
        and any(isinstance(one, ast.Attribute) and one.attr == "grad" for one in ast.walk(asked))
    )
