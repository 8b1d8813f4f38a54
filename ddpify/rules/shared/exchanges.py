"""Calls at which ranks meet: collectives, and what a wrapped model does in its backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run

JOINS: Final = (  # in these a rank that has no more rounds answers for the rest of the others
    "torch.distributed.algorithms.join.Join",
    "torch.distributed.algorithms.Join",
    f"{words.DDP}.join",
)


def exchanges(run: Run) -> Iterator[RankCall]:
    """Collectives of all ranks and backwards through wrapped models, without start and end."""
    for call in run.calls:
        if call.method == "backward" and call.receiver is not None:
            if any(_is_wrapped(thing) for thing in call.receiver.sources()):
                yield call
        elif call.name in words.COLLECTIVE_CALLS or _is_collective(call):
            yield call


def _is_wrapped(thing: RankThing) -> bool:
    return thing.name in words.WRAPPERS or thing.sharded is not None


def _is_collective(call: RankCall) -> bool:
    shared = collective(call)
    return shared is not None and shared.group is None and call.method not in words.SESSION_OPS
