"""Losses that are plain sums over the batch, from the calls that make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.mixing import Of, marks
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.values import constant
from ddpify.rules.gradients.losses import made_by, reduction
from ddpify.rules.shared.wrapped import backwards, forwards, live, wraps

# Calls that keep one entry per sample and feature.
_BY_ENTRY: Final = frozenset(
    """pow square abs neg log exp sqrt relu clamp view reshape flatten squeeze unsqueeze to cuda
    float double half sigmoid tanh softplus log_softmax softmax type contiguous""".split()
)


def summed(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """Backwards of a sum, with the call that sums."""
    calls = {call for wrap in wraps(run) for call in forwards(run, wrap)}
    for backward in backwards(run) if calls else ():
        assert backward.receiver is not None
        made = made_by(backward.receiver)
        if made is None or calls.isdisjoint(t.call for t in live(backward.receiver)):
            continue
        if _one_by_one(backward.receiver) or Of.PART in marks(backward.receiver):
            continue
        if reduction(made) == "sum" or _sums_entries(made, calls):
            yield backward, made


def _one_by_one(loss: RankValue) -> bool:
    """Whether a batch is one sample: a sum over it is no sum over samples."""
    loaders = [t.call for t in loss.sources() if t.name == words.LOADER and t.call is not None]
    return bool(loaders) and all(
        not call.star
        and call.arg(4, "batch_sampler") is None
        and (call.arg(1, "batch_size") or constant(1)).atoms in ((None, None), (1, 1))
        for call in loaders
    )


def _sums_entries(made: RankCall, calls: set[RankCall]) -> bool:
    """Whether a loss is ``(…).sum()`` over something that still has an entry per sample."""
    entries = made.receiver if made.receiver is not None else made.arg(0, "input")
    if made.method != "sum" or entries is None or made.name == "builtins.sum":
        return False
    if made.kwargs or len(made.args) > (made.receiver is None):
        return False
    first = min(call.order for call in calls)
    for thing in entries.sources():
        call = thing.call
        if thing.kind != "result" or call is None or call.order < first or call in calls:
            continue
        if call.name == "torch.device" or call.module.ours:
            continue  # where it lies, not what it is
        if call.method not in _BY_ENTRY and reduction(call) != "none":
            return False
    return True
