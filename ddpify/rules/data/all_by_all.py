"""Evaluations in which each rank goes over all samples, and whose equal results are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.events import Exit
from ddpify.ranks.model import RANK0, RankCall, RankThing, RankValue
from ddpify.ranks.passes import iterated
from ddpify.ranks.prepared import is_model
from ddpify.ranks.run import Run
from ddpify.ranks.words import DIST
from ddpify.rules.shared.feeds import by_rank, is_whole, trained
from ddpify.rules.shared.quotients import loops_over

_REDUCES: Final = (f"{DIST}all_reduce", f"{DIST}reduce")
_NUMERIC: Final = ("torch.", "numpy.", "math.", "builtins.float", "builtins.int", "builtins.round")
_NUMBERS: Final = frozenset(
    """item mean sum float double cpu cuda to tolist numpy detach clone round len max min
    __call__ eval train""".split()
)
_SUMS: Final = {f"{DIST}ReduceOp.{name}" for name in ("SUM", "AVG")}


def all_by_all(run: Run) -> Iterator[tuple[RankCall, RankThing]]:
    """(reduction, loader): every rank has gone over all of the loader, and has the same number."""
    whole = run.once(_evaluated_by_all)
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


def _evaluated_by_all(run: Run) -> set[RankThing]:
    """The loaders of which every rank goes over all samples, and does not train."""
    loops = list(loops_over(run))
    dealt = {loader for loop, loader in loops if loop.over and by_rank(loop.over)}
    evaluated = {loader for _, loader in loops} - dealt - trained(run)
    return {one for one in evaluated if one.call and one.call.everywhere and is_whole(run, one)}


def for_one(run: Run) -> Iterator[tuple[RankThing, RankCall]]:
    """(loader, use): every rank has gone over all of the loader, and only rank 0 uses what came
    of it."""
    whole = run.once(_evaluated_by_all) if run.script and trained(run) else set()
    for loader in whole:
        used = [one for one in run.calls if _takes(run, one, loader)]
        others = any(one.ranks != RANK0 and not _is_plain(one) for one in used)
        if others or _is_kept(run, loader) or _decides(run, loader):
            continue
        shown = next((one for one in used if one.ranks == RANK0 and not _is_plain(one)), None)
        if shown is not None:
            yield loader, shown


def _takes(run: Run, call: RankCall, loader: RankThing) -> bool:
    """Whether a call after the loop is given what the model made of a loader's samples."""
    if any(loader in iterated(loop) for loop in call.loops):
        return False
    return any(_is_result(run, value, loader) for value in call.inputs)


def _is_result(run: Run, value: RankValue, loader: RankThing) -> bool:
    return loader in value.sources() and _is_computed(run, value)


def _is_plain(call: RankCall) -> bool:
    """Whether it only gives another number: ``float(total)``, ``torch.tensor(hits)``."""
    if call.alone or collective(call) is not None:
        return False
    return call.name.startswith(_NUMERIC) or call.method in _NUMBERS


def _is_kept(run: Run, loader: RankThing) -> bool:
    """Whether all ranks keep it in an object."""
    return any(
        store.ranks != RANK0
        and not any(loader in iterated(loop) for loop in store.loops)
        and _is_result(run, store.value, loader)
        for store in run.stores
    )


def _decides(run: Run, loader: RankThing) -> bool:
    """Whether all ranks decide by it what they do."""
    done = set()
    moments: list[Exit | RankCall] = [*run.exits, *run.calls]
    for one in moments:
        for guard in one.guards:
            if guard.ranks == RANK0:
                break
            if guard not in done and _is_result(run, guard.test, loader):
                return True
            done.add(guard)
    return False


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
