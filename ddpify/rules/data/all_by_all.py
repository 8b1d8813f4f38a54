"""Evaluations in which each rank goes over all samples, and whose equal results are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.events import Exit
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.passes import iterated
from ddpify.ranks.prepared import is_model
from ddpify.ranks.run import Run
from ddpify.ranks.words import DIST
from ddpify.rules.shared.feeds import by_rank, is_whole, trained
from ddpify.rules.shared.quotients import loops_over

_REDUCES: Final = (f"{DIST}all_reduce", f"{DIST}reduce")
_SUMS: Final = {f"{DIST}ReduceOp.{name}" for name in ("SUM", "AVG")}


def all_by_all(run: Run) -> Iterator[tuple[RankCall, RankThing]]:
    """(reduction, loader): every rank has gone over all of the loader, and has the same number."""
    loops = list(loops_over(run))
    dealt = {loader for loop, loader in loops if loop.over and by_rank(loop.over)}
    evaluated = {loader for _, loader in loops} - dealt - trained(run)
    whole = {one for one in evaluated if one.call and one.call.everywhere and is_whole(run, one)}
    for call in run.named(*_REDUCES) if whole else ():
        shared = collective(call)
        op = shared.given("op") if shared is not None else None
        value = shared.given(shared.filled) if shared is not None else None
        if value is None or not call.everywhere or value.all_origins:
            continue
        compared = op is not None and not op.names() <= _SUMS  # the least and the largest
        if compared or not _is_computed(run, value):
            continue
        loader = next((one for one in value.sources() if one in whole), None)
        if loader is not None:
            yield call, loader


def _is_computed(run: Run, value: RankValue) -> bool:
    """Whether a model went over samples for it, and no rank's number says over which."""
    made = (thing.call for thing in value.sources() if thing.call is not None)
    models = [c for c in made if c.method == "__call__" and c.receiver is not None]
    models = [c for c in models if c.receiver and any(map(is_model, c.receiver.things))]
    return bool(models) and not any(_is_shared_out(run, one) for one in models)


def _is_shared_out(run: Run, forward: RankCall) -> bool:
    """Whether the rank decides on something in the loop over the batches: ``if i % n != rank``."""
    inside = {loop for loop in forward.loops if iterated(loop)}
    moments: list[Exit | RankCall] = [*run.exits, *run.calls]
    asked = (one.guards for one in moments if inside.intersection(one.loops))
    return any(guard.test.by_rank for guards in asked for guard in guards)
