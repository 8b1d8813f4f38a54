"""Python's functions of numbers, where the numbers are known."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ddpify.ranks import iterables, sizes
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.logic import chain
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.operations import power
from ddpify.ranks.origins import Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import TRUE, differs, gathered

Handler = Callable[["RankMachine", "RankFrame", RankCall], RankValue | None]


def _folded(function: Callable[..., Any], other: Handler | None = None) -> Handler:
    def folded(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
        given = _written(one) or one.args
        picked = other(m, f, one) if other is not None else None
        if picked is not None:
            return picked
        numbers = all(isinstance(atom, (int, float)) for value in given for atom in value.atoms)
        if not given or one.kwargs or one.star or not numbers:
            return None
        by_rank = any(map(differs, given))
        atoms = []
        for rank in (0, 1):
            held = [value.atoms[rank] for value in given]
            held = [sizes.with_two(atom) for atom in held] if by_rank else held
            try:
                atoms.append(sizes.apply(function, *held))
            except Exception:  # the user's numbers may not be meant for it
                return None
        return RankValue((atoms[0], atoms[1]), (), *gathered(given))

    return folded


def _rounded(function: Callable[..., Any]) -> Handler:
    """Not of the number of processes: of ``ceil(rows / world)`` it matters that it is rounded."""
    folded = _folded(function)

    def rounded(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
        sized = any(isinstance(atom, sizes.Sized) for value in one.args for atom in value.atoms)
        return None if sized else folded(m, f, one)

    return rounded


def _written(one: RankCall) -> tuple[RankValue, ...] | None:
    """The elements of a list that is written in the call itself."""
    node = one.node.args[0] if len(one.node.args) == 1 else None
    if not isinstance(node, (ast.List, ast.Tuple)) or len(one.args) != 1:
        return None
    return None if any(isinstance(part, ast.Starred) for part in node.elts) else one.args[0].items


def _all_any(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``all([a, b])`` is true where ``a and b`` is; a model that is asked whether it is trained is:
    of one that is frozen whole (``not any(p.requires_grad for p in …)``) nothing is averaged."""
    items = one.args[0].items if len(one.args) == 1 else None
    if one.method == "any" and items and all(_asks_gradient(value) for value in items):
        return RankValue(TRUE.atoms, (), *gathered(items))
    given = _written(one)
    return replace(chain(one.method == "all", list(given)), things=()) if given else None


def _asks_gradient(value: RankValue) -> bool:
    return all(isinstance(a, Symbol) and a.key.endswith(".requires_grad") for a in value.atoms)


HANDLERS: Final[dict[str, Handler]] = {
    "builtins.min": _folded(min, iterables.best),
    "builtins.max": _folded(max, iterables.best),
    **{f"math.{one.__name__}": _rounded(one) for one in (math.ceil, math.floor, math.trunc)},
    "builtins.abs": _folded(abs),
    "builtins.round": _folded(round),
    "builtins.pow": _folded(power),
    "builtins.sum": _folded(lambda *numbers: sum(numbers), iterables.added),
    "builtins.all": _all_any,
    "builtins.any": _all_any,
}
