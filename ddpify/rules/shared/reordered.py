"""The same things, one after the other, in another order on each rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from ddpify.ranks.collective import Collective, exchange
from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.shared.sorting import sorted_by_numbers
from ddpify.site import Site

_SUMMING: Final = frozenset("all_reduce reduce Allreduce allreduce".split())
_FILLING: Final = _SUMMING | frozenset({"broadcast", "Bcast"})


def reordered(run: Run) -> Iterator[tuple[RankCall, Site, Site]]:
    """The collectives to which ranks come with the same things in different orders, where that is,
    and what puts these in order: the loop, or the call that the other ranks make instead."""
    for loop in run.loops:
        items = loop.over.items if loop.over is not None else None
        if (items and _turned([*items])) or sorted_by_numbers(run, loop):
            found = (one for one in run.calls if _is_given_an_element(one, loop))
            for one in list(found)[:1]:
                yield one, one.place_in(loop.site) or one.site, loop.site
    yield from ((one, one.site, site) for one, site in _in_sequence(run))


def _in_sequence(run: Run) -> Iterator[tuple[RankCall, Site]]:
    """``all_reduce(first); all_reduce(second)`` where one rank has the two the other way round."""
    given: dict[tuple[RankThing, ...], RankCall] = {}
    for call in run.calls:
        shared = exchange(call)
        value = shared.given(shared.filled) if shared is not None and shared.whole else None
        if value is None or not call.everywhere or call.method not in _SUMMING:
            continue
        first = given.get(value.things[::-1])  # once reduced, its numbers are those of all
        if first is not None:
            yield call, first.site
        if len(value.things) == 2 and len(value.apart) == 2:
            given[value.things] = call


def _turned(items: Sequence[RankValue]) -> bool:
    """Whether both ranks have the same elements in different orders."""
    one, other = ([text(item.atoms[rank]) for item in items] for rank in (0, 1))
    return one != other and sorted(one) == sorted(other)


def _is_given_an_element(call: RankCall, loop: RankLoop) -> bool:
    """Whether a collective within a loop exchanges what the loop goes through."""
    shared = exchange(call)
    if shared is None or not shared.whole or call.method not in _FILLING:
        return False
    if not call.everywhere or call.place_in(loop.site) is None or loop.over is None:
        return False
    value = shared.given(shared.filled)
    held = {thing for item in loop.over.items or () for thing in (*item.things, *item.made_from)}
    if value is not None and not held.isdisjoint(value.sources()):
        return True
    return _mentions(shared, loop)


def _mentions(shared: Collective, loop: RankLoop) -> bool:
    """``all_reduce(totals[name])`` of ``for name in names``."""
    node = shared.node(shared.filled)
    target = getattr(loop.node, "target", None)
    named = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} if target else set()
    used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node is not None else set()
    return not named.isdisjoint(used)
