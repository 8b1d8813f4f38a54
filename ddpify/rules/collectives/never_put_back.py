"""Gradients that are averaged in a copy, while the optimizer steps with those of this rank:

flat = torch.cat([p.grad.reshape(-1) for p in params])
dist.all_reduce(flat)
flat /= world
return flat.norm()                      # nothing sets p.grad
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.averaged_by_hand import (
    Averaging,
    averagings,
    gradients_set,
    is_in_place,
)
from ddpify.rules.shared.optimizers import trained_by
from ddpify.rules.shared.replicated import handed_on, parameters_sent
from ddpify.rules.shared.wrapped import wraps

# Numbers of what a tensor holds, which take no gradient anywhere.
_NUMBERS: Final = frozenset("norm vector_norm item mean sum max min all any numel size".split())
# What shows parts of a tensor, or scales it where it is.
_LOOKS: Final = frozenset(
    "div_ mul_ true_divide_ isfinite isnan abs view view_as reshape split unbind enumerate zip"
    " _unflatten_dense_tensors".split()
)
_HOOKS: Final = ("register_hook", "register_post_accumulate_grad_hook")


def never_put_back(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """(collective, step): the copy of gradients that is reduced, and the step without it."""
    averaged = averagings(run)
    for one in averaged if not any(run.methods(*_HOOKS)) else ():
        same = (other for other in averaged if not one.models.isdisjoint(other.models))
        if any(is_in_place(other.call) or not _is_dropped(run, other.call) for other in same):
            continue
        step = _step(run, one)
        covers = one.models.__contains__
        wrapped = any(wrap.covers(model) for wrap in wraps(run) for model in one.models)
        if step is None or wrapped or any(gradients_set(run, covers)):
            continue
        if not handed_on(run, one.models) and not parameters_sent(run, step):
            yield one.call, step


def _step(run: Run, one: Averaging) -> RankCall | None:
    """The step behind the collective, in the same rounds."""
    for call in run.methods("step"):
        models = trained_by(call.receiver) if call.receiver is not None else set()
        round_ = call.loops and call.loops[-1] in one.call.loops
        if round_ and call.order > one.call.order and not one.models.isdisjoint(models):
            return call
    return None


def _is_dropped(run: Run, call: RankCall) -> bool:
    """Whether all that becomes of a tensor, once it is reduced, are numbers that are shown."""
    given = [thing for value in call.args[:1] for thing in value.things]
    if len(given) != 1 or given[0].call is None:
        return False
    copy = given[0]
    uses = (c for c in run.calls if c.order > call.order)
    carried = (c for c in uses if any(_carries(value, copy) for value in c.inputs))
    stored = (s for s in run.stores if s.order > call.order and _carries(s.value, copy))
    return all(c.method in _NUMBERS | _LOOKS for c in carried) and not any(stored)


def _carries(value: RankValue, copy: RankThing) -> bool:
    """Whether a value holds numbers of a tensor, and is not one number made of all."""
    if copy in value.things:
        return True
    made = set(value.sources())
    return copy in made and not any(
        thing.call is not None and thing.call.method in _NUMBERS for thing in made
    )
