"""Losses that are plain sums over the batch, from the calls that make them."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.mixing import Mark, Of, marks
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.losses import made_by, one_by_one, reduction, sums_entries
from ddpify.rules.shared.wrapped import backwards, forwards, live, wraps


def summed(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """Backwards of a sum, with the call that sums."""
    calls = {call for wrap in wraps(run) for call in forwards(run, wrap)}
    hooked = any(run.methods("register_comm_hook"))  # it may sum, where DDP would average
    for backward in backwards(run) if calls else ():
        assert backward.receiver is not None
        loss = backward.receiver if hooked else _of_all(backward.receiver)
        made = made_by(loss)
        if made is None or calls.isdisjoint(t.call for t in live(backward.receiver)):
            continue
        if one_by_one(backward.receiver) or Of.PART in marks(backward.receiver):
            continue
        if reduction(made) == "sum" or sums_entries(made, calls):
            yield backward, made


def _of_all(loss: RankValue) -> RankValue:
    """The sum of ``loss / count``, where the count is of all ranks: DDP divides by their number
    once more; ``loss * world / count`` is another number."""
    of = (m for m in loss.sources() if isinstance(m, Mark) and m.of is Of.HALF and m.is_of(loss))
    return next((mark.parts[0] for mark in of if mark.parts), loss)
