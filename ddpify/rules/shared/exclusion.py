"""Which of two calls a run makes, where it makes one of them only."""

from __future__ import annotations

import ast

from ddpify.ranks.events import Exit
from ddpify.ranks.model import ALL, RankCall, RankGuard
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.trace import ABORT
from ddpify.ranks.values import key_of, spread

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, *_COMPREHENSIONS)


def excludes(run: Run, a: RankCall, b: RankCall) -> bool:
    """Whether the ranks agree which of two calls they make: ``if train: save() else: load()``."""
    return (
        any(_contrary(one, other) for one in a.guards for other in b.guards)
        or any(_ends(left, a, b) for left in run.exits if a.order < left.order < b.order)
        or chosen_apart(a, b)
    )


def chosen_apart(a: RankCall, b: RankCall) -> bool:
    """Whether one call leads to either, by what it calls: ``{"none": Local, "ddp": Several}[how]``.

    In a loop, or in what a loop calls, that may be each in turn.
    """
    for one, other in zip(a.way, b.way, strict=False):
        if one is not other:
            what, instead = (one.name, one.target), (other.name, other.target)
            agreed = one.everywhere and other.everywhere
            return agreed and one.node is other.node and what != instead and not _repeats(one)
    return False


def _repeats(call: RankCall) -> bool:
    """Whether it is made again and again, be it of a few known things."""
    scope = call.function.node if call.function is not None else call.module.tree
    loops = (node for node in ast.walk(scope) if isinstance(node, _LOOPS))
    return bool(call.loops) or any(call.site.within(call.module.site(node)) for node in loops)


def _contrary(one: RankGuard, other: RankGuard) -> bool:
    """Whether two conditions, of which all ranks say the same, do not both hold."""
    if spread(one.test) or spread(other.test):
        return False
    if one.node is other.node or key_of(one.test) == key_of(other.test):
        return one.holds is not other.holds
    first, second = (guard.test.atoms[0] for guard in (one, other))
    if not (isinstance(first, Symbol) and isinstance(second, Symbol) and one.holds and other.holds):
        return False
    a, b = first.parts, second.parts
    if (*a[:1], *b[:1]) != ("Eq", "Eq") or isinstance(a[2], Symbol) or isinstance(b[2], Symbol):
        return False
    return bool(a[1] == b[1] and a[2] != b[2])


def _ends(left: Exit, a: RankCall, b: RankCall) -> bool:
    """Whether all ranks leave behind one call, before another: ``if prepare: make(); return``."""
    if left.ranks != ALL or left.kind not in ("return", "stop", ABORT) or not left.guards:
        return False
    asked = {(guard.node, guard.holds) for guard in a.guards}
    if any(spread(g.test) or (g.node, g.holds) not in asked for g in left.guards):
        return False
    anew = any(one.target is left.function and one.order > a.order for one in b.stack)
    inside = any(one.function is left.function for one in b.way)
    return left.kind != "return" or (inside and not anew)
