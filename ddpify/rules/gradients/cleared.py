"""Gradients whose local part does no harm: they are cleared, or averaged, before any step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.passes import is_scaler
from ddpify.ranks.run import Run
from ddpify.rules.shared.wrapped import Wrap, parameters_of

_CLIPS = "torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_"


def is_cleared(run: Run, backward: RankCall, wrap: Wrap) -> bool:
    """Whether ``zero_grad`` comes before ``step`` wherever the program goes on from there."""
    return not is_scaler(backward) and _come_first(
        run, backward, wrap, [c for c in run.methods("zero_grad") if _is_for(c, wrap)]
    )


def is_averaged(run: Run, backward: RankCall, wrap: Wrap) -> bool:
    """Whether the helper that averages gradients comes before anything that uses them."""
    ours = (c for c in run.calls if c.target is not None and c.target.module.ours)
    calls = [c for c in ours if c.target is not None and c.target.name == "average_gradients"]
    given = [(c, c.arg(0, "model")) for c in calls]
    averages = [c for c, v in given if v is not None and any(map(wrap.covers, v.things))]
    return _come_first(
        run, backward, wrap, averages, [*run.named(*_CLIPS), *run.methods("unscale_")]
    )


def _come_first(
    run: Run, backward: RankCall, wrap: Wrap, wanted: list[RankCall], more: Iterable[RankCall] = ()
) -> bool:
    """Whether such a call surely comes before a step, or ``more`` that it should come before."""
    steps = [c for c in run.methods("step") if c.receiver is not None and _may_use(c, wrap)]
    asked = [set(step.guards) for step in steps]
    known = {*backward.guards, *(set.intersection(*asked) if asked else ())}
    sure = [call for call in wanted if known.issuperset(call.guards)]
    events = sorted([*sure, *steps, *more], key=lambda call: call.order)
    return bool(sure) and all(first in sure for first in _next(backward, events))


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
    """Any optimizer, except one whose parameters are known to be others; no schedule, which alone
    is told a number."""
    if any(not given.things and given.atoms != (None, None) for given in call.args):
        return False
    given = parameters_of(call.receiver) if call.receiver is not None else set()
    return not given or any(wrap.covers(thing) for thing in given)
