"""Calls of one collective that each rank makes at its own place, and that meet: in both arms of a
condition on the rank, or in a function for rank 0 and one for the others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ddpify.ranks import words
from ddpify.ranks.collective import Collective, exchange
from ddpify.ranks.model import ALL, RANK0, RANK1
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run

Pair = tuple[Collective, Collective]


def meeting(run: Run) -> Iterator[Pair]:
    """The calls of rank 0 and of rank 1 that meet: between two that all ranks make, both ranks
    make as many, in one order."""
    for held in _stretches(run):
        yield from _paired(held)


def _stretches(run: Run) -> Iterator[list[Collective]]:
    """The calls that one rank alone makes, between those that both do."""
    calls = (call for call in run.calls if call.method not in words.SESSION_OPS)
    found = [shared for call in calls if (shared := exchange(call)) and shared.whole]
    for alone, held in groupby(found, key=lambda shared: shared.call.ranks != ALL):
        if alone:
            yield [*held]


def _paired(held: list[Collective]) -> Iterator[Pair]:
    groups = [{group_of(s) for s in held if s.call.ranks == ranks} for ranks in (RANK0, RANK1)]
    if groups[0] == groups[1]:  # calls meet in the order of each group
        for group in dict.fromkeys(map(group_of, held)):
            yield from _in_group([s for s in held if group_of(s) == group])
    else:
        yield from _in_group(held)


def group_of(shared: Collective) -> object:
    """What tells its group from others; None for that of all ranks."""
    return shared.group.atoms if shared.group is not None else None


def _in_group(held: list[Collective]) -> Iterator[Pair]:
    one, other = ([s for s in held if s.call.ranks == ranks] for ranks in (RANK0, RANK1))
    if [s.call.name for s in one] == [s.call.name for s in other]:
        for first, second in zip(one, other, strict=True):
            if _circumstances(first, 0) == _circumstances(second, 1):
                yield first, second


def _circumstances(shared: Collective, rank: int) -> object:
    """In how many loops, and under which conditions that are not known."""
    tests = ((guard.test.atoms[rank], guard.holds) for guard in shared.call.conditions)
    unknown = [(atom.key, holds) for atom, holds in tests if isinstance(atom, Symbol)]
    return len(shared.call.loops), unknown
