"""Loops in which gradients add up, whatever they go over: the step comes after them."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.accumulation import SYNC, of_another, steps_of
from ddpify.rules.shared.wrapped import Wrap, backwards, forwards, reached, wraps


def inner_loops(run: Run) -> Iterator[tuple[Wrap, RankCall, RankCall]]:
    """A wrapped model, its backward in a loop, and the step after that."""
    steps = list(steps_of(run))
    for wrap in wraps(run):
        if any(store.key == SYNC and wrap.wrapper in store.base.things for store in run.stores):
            continue
        mine = forwards(run, wrap)
        for backward in (one for one in backwards(run) if len(one.loops) > 1):
            inside = [c for c in reached(backward, mine) if backward.loops[-1] in c.loops]
            step = next((s for s in steps if _ends(run, backward, s)), None)
            if inside and step is not None and not of_another(step, wrap):
                yield wrap, backward, step


def _ends(run: Run, backward: RankCall, step: RankCall) -> bool:
    """Whether a step comes after the loop of a backward, in which nothing clears gradients."""
    after = step.order > backward.order and step.loops == backward.loops[:-1]
    return after and not any(backward.loops[-1] in c.loops for c in run.methods("zero_grad"))
