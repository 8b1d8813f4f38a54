"""Gradients of a last, shorter window that a program steps with and does not average by hand:

for i, batch in enumerate(batches):
    loss(batch).backward()
    if (i + 1) % accum == 0:
        average(model)
        optimizer.step()
if pending:
    optimizer.step()                    # each rank's own
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.shared.averaged_by_hand import averagings
from ddpify.rules.shared.optimizers import trained_by
from ddpify.rules.shared.wrapped import exclusive, wraps


def left_unaveraged(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(step, averaging): steps behind a loop, and what averages in the windows of the loop."""
    averaged = averagings(run)
    steps = [call for call in run.methods("step") if _models(call)] if averaged else []
    for one, last in pairwise(steps):
        models = _models(last)
        if models.isdisjoint(_models(one)) or exclusive(one, last):
            continue
        if any(wrap.covers(model) for wrap in wraps(run) for model in models):
            continue
        mine = [each.call for each in averaged if not models.isdisjoint(each.models)]
        loop = one.loops[-1] if one.loops else None
        if loop is None or loop in last.loops or not one.guards or not last.everywhere:
            continue
        inside = [call for call in mine if loop in call.loops and call.order < one.order]
        behind = any(one.order < call.order < last.order for call in mine)
        if inside and not behind and _adds_up(run, one, last, inside[-1]):
            yield last, inside[-1]


def _models(step: RankCall) -> set[RankThing]:
    """Those of ``optimizer.step()``, or ``scaler.step(optimizer)``."""
    given = (step.receiver, *step.args[:1])
    return {model for value in given if value is not None for model in trained_by(value)}


def _adds_up(run: Run, one: RankCall, last: RankCall, averaging: RankCall) -> bool:
    """Whether each round of the loop has a backward, and windows of them alone are averaged and
    stepped with; behind it nothing computes gradients anew, or clears them."""
    loop = one.loops[-1]
    before = [b for b in run.backwards if loop in b.loops and b.order < averaging.order]
    own = set(one.guards) - set(last.guards)
    windows = own & set(averaging.guards) - {g for b in before for g in b.guards}
    between = (
        call
        for call in (*run.backwards, *run.methods("zero_grad"))
        if one.order < call.order < last.order and loop not in call.loops
    )
    return bool(before) and bool(windows) and not any(between)
