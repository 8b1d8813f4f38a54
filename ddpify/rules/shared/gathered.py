"""What Accelerate gathers of an evaluation, with the samples that fill up its last batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.passes import iterated
from ddpify.ranks.run import Run
from ddpify.rules.shared.accelerators import deals_otherwise, option
from ddpify.rules.shared.feeds import argument, trained
from ddpify.rules.shared.losses import made_by, reduction

_GATHERS: Final = ("accelerate.Accelerator.gather", "accelerate.utils.gather")
_FOLDS: Final = frozenset("mean sum item float int len max min all any".split())


def filled_up(run: Run) -> Iterator[tuple[RankCall, RankThing]]:
    """Calls that gather entries of samples in a loop over a loader that deals repeated ones."""
    learning = trained(run)
    # `each[: len(loader.dataset) - seen]`: what fills up is cut off by hand.
    cut = {thing for value in run.cut for thing in value.sources()}
    done: set[tuple[object, RankThing]] = set()
    for call in run.named(*_GATHERS):
        if call.result is None or deals_otherwise(call) or not cut.isdisjoint(call.result.things):
            continue
        if option(call, "even_batches") is not None:
            continue
        for loop in call.loops:
            for loader in iterated(loop) if loop.node not in run.training_loops else ():
                if loader in learning or (loop.node, loader) in done:
                    continue
                if _fills_up(loader) and _is_of_samples(call, loader):
                    done.add((loop.node, loader))
                    yield call, loader


def _fills_up(loader: RankThing) -> bool:
    """Whether Accelerate deals a loader's batches until every rank has as many, as long ones."""
    drop = argument(loader, 8, "drop_last")
    return loader.deals and (drop is None or drop.constant is False)


def _is_of_samples(call: RankCall, loader: RankThing) -> bool:
    """Whether something that is gathered has an entry per sample of the loader's batch."""
    given = call.arg(0, "tensor")
    values = (given, *(given.items or ())) if given is not None else ()
    return any(loader in one.sources() and not _is_number(one) for one in values if not one.items)


def _is_number(value: RankValue) -> bool:
    """Whether a value is one number of a batch: a loss, a mean, a count."""
    call = made_by(value)
    if call is not None:
        return call.method in _FOLDS or reduction(call) in ("mean", "sum")
    return any(thing.name.rpartition(".")[2] == "loss" for thing in value.things)
