"""The same things, one after the other, in another order on each rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import Collective, exchange
from ddpify.ranks.members import of_all
from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.shared.arms import meeting
from ddpify.rules.shared.sorting import order_of, sorted_by_numbers
from ddpify.site import Site

_SUMMING: Final = frozenset("all_reduce reduce Allreduce allreduce".split())
_FILLING: Final = _SUMMING | frozenset({"broadcast", "Bcast"})


def reordered(run: Run) -> Iterator[tuple[RankCall, Site, Site]]:
    """The collectives to which ranks come with the same things in different orders, where that is,
    and what puts these in order: the loop, or the call that the other ranks make instead."""
    for loop in run.loops:
        items = loop.over.items if loop.over is not None else None
        sorts = (items and _turned([*items])) or sorted_by_numbers(run, loop)
        if sorts or _sorted_apart(loop.over):
            found = (one for one in run.calls if is_given_an_element(one, loop))
            for one in list(found)[:1]:
                yield one, one.place_in(loop.site) or one.site, loop.site
    yield from ((one, one.site, site) for one, site in _in_sequence(run))
    yield from ((one, one.site, site) for one, site in _in_arms(run))


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


def _sorted_apart(over: RankValue | None) -> bool:
    """``sorted(names) if rank == 0 else list(names)``."""
    if over is None or not over.apart:
        return False
    first, second = (order_of(over, rank) for rank in (0, 1))
    return bool(first and second and first != second and first.of == second.of)


def _in_arms(run: Run) -> Iterator[tuple[RankCall, Site]]:
    """``sorted(net.state_dict().items())`` on rank 0, not sorted on the others."""
    for one, other in meeting(run):
        loops = (one.call.loops[-1:], other.call.loops[-1:])
        first, second = (
            order_of(loop[0].over, rank) if loop and loop[0].over is not None else None
            for rank, loop in enumerate(loops)
        )
        if first and second and first != second and first.of == second.of:
            yield other.call, loops[0][0].site


def _turned(items: Sequence[RankValue]) -> bool:
    """Whether both ranks have the same elements in different orders."""
    one, other = ([text(item.atoms[rank]) for item in items] for rank in (0, 1))
    return one != other and sorted(one) == sorted(other)


def is_given_an_element(call: RankCall, loop: RankLoop) -> bool:
    """Whether a collective within a loop exchanges what the loop goes through."""
    shared = exchange(call)
    if shared is None or call.method not in _FILLING:
        return False
    if not call.everywhere or call.place_in(loop.site) is None or loop.over is None:
        return False
    value = shared.given(shared.filled)
    held = {thing for item in loop.over.items or () for thing in item.sources()}
    if not shared.whole:  # each rank may enter the same groups in an order of its own
        return shared.waits is True and _of_all(shared.group, held)
    if value is not None and not held.isdisjoint(value.sources()):
        return True
    return _mentions(shared, loop)


def forwards_of_elements(run: Run, loop: RankLoop) -> list[RankCall]:
    """The forwards with gradients of several wrapped models, one of which each round chooses:
    ``for task in tasks: task.step(x)``, ``for i in order: nets[i](x)``."""
    named = _names(getattr(loop.node, "target", None))
    within = (one for one in run.calls if one.method == "__call__" and one.grad)
    found = []
    for call in within:
        way = [one for one in call.way if one.site.within(loop.site)]
        if way and call.everywhere and named & _names(way[0].node.func):
            found.append(call)
    made = {t for one in found if one.receiver for t in one.receiver.things}
    return found if len(made) > 1 and all(one.name == words.DDP for one in made) else []


def _of_all(group: RankValue | None, held: set[RankThing]) -> bool:
    """Whether it is one of several groups in a list, of which all ranks are members."""
    things = group.things if group is not None else ()
    made = [one.call for one in things if one in held and one.name == f"{words.DIST}new_group"]
    return 1 < len(things) == len(made) and all(one is not None and of_all(one) for one in made)


def _mentions(shared: Collective, loop: RankLoop) -> bool:
    """``all_reduce(totals[name])`` of ``for name in names``, ``broadcast(x, src=name)``, what an
    inner loop goes through, ``for p in layers[name].parameters()``, and what is given a name."""
    named = _names(getattr(loop.node, "target", None))
    for inner in ast.walk(loop.node):
        if isinstance(inner, (ast.For, ast.comprehension)) and named & _names(inner.iter):
            named |= _names(inner.target)
        if isinstance(inner, ast.Assign) and named & _names(inner.value):
            named |= {one.id for one in inner.targets if isinstance(one, ast.Name)}
    return any(named & _names(shared.node(one)) for one in (shared.filled, "src", "dst"))


def _names(node: ast.AST | None) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node is not None else set()
