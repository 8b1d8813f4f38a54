"""Calls of one collective that stand in both arms of a condition on the rank, and so meet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ddpify.ranks.collective import Collective, collective
from ddpify.ranks.model import RANK0, RANK1
from ddpify.ranks.run import Run


def meeting(run: Run) -> Iterator[tuple[Collective, Collective]]:
    """The calls of rank 0 and of rank 1 that meet, where both have as many under one condition."""
    found: list[Collective] = []
    for call in run.calls:
        shared = collective(call)
        if shared is not None and shared.group is None and call.ranks in (RANK0, RANK1):
            found.append(shared)
    for _, group in groupby(found, key=_condition):
        held = list(group)
        one, other = ([s for s in held if s.call.ranks == ranks] for ranks in (RANK0, RANK1))
        if [s.call.name for s in one] == [s.call.name for s in other]:
            yield from zip(one, other, strict=True)


def _condition(shared: Collective) -> object:
    guard = shared.call.guards[-1] if shared.call.guards else None
    return (guard.node if guard is not None else None, shared.call.stack, shared.call.loops)
