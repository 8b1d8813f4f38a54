"""Gradients that DDP has averaged in ``backward()``, and that the program reduces once more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.gradients.comm_hooks import hooked
from ddpify.rules.shared.accumulation import skips
from ddpify.rules.shared.averaged_by_hand import (
    Averaging,
    averagings,
    gradients_set,
    is_in_place,
)
from ddpify.rules.shared.wrapped import Wrap, backwards, forwards, reached, wraps

_IGNORED: Final = "_ddp_params_and_buffers_to_ignore"  # parameters that DDP does not average


def averaged_again(run: Run) -> Iterator[tuple[Averaging, Wrap]]:
    """What reduces the gradients of a wrapped model over all ranks, after a backward that has."""
    made = [] if skips(run) or any(hooked(run)) or _ignores(run) else wraps(run)
    for wrap in made:
        calls = forwards(run, wrap)
        if wrap.call.arg(6, "process_group") is not None or _goes_round(run, wrap, calls):
            continue
        for one in averagings(run):
            if not all(map(wrap.covers, one.models)) or not _is_stepped_by(run, one):
                continue
            if _follows(run, one.call, calls):
                yield one, wrap
                break


def _is_stepped_by(run: Run, one: Averaging) -> bool:
    """Whether an optimizer takes what comes of it: a copy, or what comes after, is for a log."""
    ends = [call for call in run.methods("step", "backward") if call.order > one.call.order]
    put_back = is_in_place(one.call) or any(gradients_set(run, one.models.__contains__))
    steps = bool(ends) and ends[0].name.startswith("torch.optim.")
    before = [call for call in run.methods("step", "backward") if call.order < one.call.order]
    return put_back and steps and bool(before) and before[-1].method == "backward"


def _ignores(run: Run) -> bool:
    told = any(store.key == _IGNORED for store in run.stores)
    return told or any(call.method.endswith("to_ignore_for_model") for call in run.calls)


def _goes_round(run: Run, wrap: Wrap, calls: list[RankCall]) -> bool:
    """Whether the model inside is run by itself, too, or the wrapper may be another object."""
    whole = set(calls)
    inner = (
        call
        for call in run.methods("__call__", "forward")
        if whole.isdisjoint(call.way) and call.receiver is not None
        if any(map(wrap.holds, call.receiver.things))
    )
    return any(inner) or not all(c.receiver and len(c.receiver.things) == 1 for c in calls)


def _follows(run: Run, call: RankCall, calls: list[RankCall]) -> bool:
    """Whether each backward before it is of the wrapper's outputs, and leads to it surely."""
    before = [one for one in backwards(run) if one.order < call.order]
    near = [one for one in before if one.loops == call.loops[: len(one.loops)]]
    through = bool(near) and all(one.receiver and reached(one, calls) for one in before)
    known = {guard.node for one in near for guard in one.guards}
    asked = (guard for guard in call.guards if guard.node not in known)
    return through and all(".grad" in one.module.text(one.node) for one in asked)
