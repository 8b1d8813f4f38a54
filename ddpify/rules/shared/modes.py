"""Training and evaluation mode of a wrapped model, as each rank has set it where it trains."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.model import RANK0, RANK1, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.wrapped import Wrap, forwards


def parted_modes(run: Run, wrap: Wrap) -> Iterator[RankCall]:
    """The calls of ``train`` or ``eval`` of some ranks that still hold where all of them train."""
    calls = [call for call in run.methods("train", "eval") if _is_for(call, wrap)]
    if all(call.everywhere for call in calls):
        return
    found: set[RankCall] = set()
    for forward in forwards(run, wrap):
        for before in _before(forward, calls) if forward.everywhere else ():
            last = [_last(before, rank) for rank in (RANK0, RANK1)]
            if {True, False} == {_mode(call, forward) for call in last}:
                found.update(call for call in last if call is not None and not call.everywhere)
    yield from sorted(found, key=lambda call: call.order)


def _is_for(call: RankCall, wrap: Wrap) -> bool:
    mine = {wrap.wrapper, *wrap.inner}
    return call.receiver is not None and not mine.isdisjoint(call.receiver.things)


def _before(forward: RankCall, calls: list[RankCall]) -> Iterator[list[RankCall]]:
    """The calls before a forward, in the first round and in a later one of each loop."""
    earlier = [call for call in calls if call.order < forward.order]
    yield earlier
    for loop in forward.loops:
        inside = [call for call in calls if loop in call.loops]
        later = [call for call in inside if call.order > forward.order]
        yield [*earlier, *later, *(call for call in inside if call.order < forward.order)]


def _last(calls: list[RankCall], rank: int) -> RankCall | None:
    return next((call for call in reversed(calls) if call.ranks & rank), None)


def _mode(call: RankCall | None, forward: RankCall) -> bool | None:
    """Whether it sets training mode, which a model begins with; None where that is not known.

    Of all ranks, under a condition that need not hold where the forward comes, that is so.
    """
    if call is None:
        return True
    own = (guard for guard in call.conditions if guard not in forward.conditions)
    if call.everywhere and not all(guard.test.known for guard in own):
        return None
    given = call.arg(0, "mode")
    if call.method == "eval" or given is None:
        return call.method == "train"
    return bool(given.constant) if given.known else None
