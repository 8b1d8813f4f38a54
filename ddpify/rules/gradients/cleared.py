"""Gradients that nobody steps with: they are cleared before any optimizer comes to them."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.wrapped import Wrap, parameters_of


def is_cleared(run: Run, backward: RankCall, wrap: Wrap) -> bool:
    """Whether ``zero_grad`` comes before ``step`` wherever the program goes on from there."""
    clears = [c for c in run.methods("zero_grad") if _is_for(c, wrap) and _is_sure(c, backward)]
    steps = [c for c in run.methods("step") if c.receiver is not None and _may_use(c, wrap)]
    firsts = list(_next(backward, sorted([*clears, *steps], key=lambda call: call.order)))
    return bool(clears) and all(first in clears for first in firsts)


def _next(call: RankCall, events: list[RankCall]) -> Iterator[RankCall]:
    """The events that may come next: in this round of a loop, in the next one, after the loop."""
    for loop in reversed(call.loops):
        inside = [event for event in events if loop in event.loops]
        later = [event for event in inside if event.order > call.order]
        yield from (later or inside)[:1]
        if later:
            return
    yield from [event for event in events if event.order > call.order][:1]


def _is_for(call: RankCall, wrap: Wrap) -> bool:
    """Whether a call clears the gradients of the whole model."""
    if call.receiver is None:
        return False
    mine = {wrap.wrapper, *wrap.inner}
    return not mine.isdisjoint({*call.receiver.things, *parameters_of(call.receiver)})


def _may_use(call: RankCall, wrap: Wrap) -> bool:
    """Any optimizer, except one whose parameters are known to be others."""
    given = parameters_of(call.receiver) if call.receiver is not None else set()
    return not given or any(wrap.covers(thing) for thing in given)


def _is_sure(call: RankCall, backward: RankCall) -> bool:
    return set(call.guards) <= set(backward.guards)
