"""Samples that all ranks draw alike and then put together: copies, where as many were meant.

gen = torch.Generator().manual_seed(seed)       # on every rank
mine = net(torch.randn(n, z, generator=gen))
dist.all_gather(parts, mine)
fake = torch.cat(parts)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall
from ddpify.ranks.prepared import is_model
from ddpify.ranks.run import Run
from ddpify.ranks.words import DIST, TORCH
from ddpify.rules.process.generators import alike, chosen, is_noise
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.rules.shared.written import text

_GATHERS: Final = {
    f"{DIST}all_gather": "tensor_list",
    f"{DIST}gather": "gather_list",
    f"{DIST}all_gather_into_tensor": "output_tensor",
}
_SEEDS: Final = ("torch.manual_seed", "torch.random.manual_seed")
_MERGES: Final = ("torch.cat", "torch.concat", "torch.vstack")


def merged_draws(run: Run) -> Iterator[tuple[RankCall, RankCall, RankCall]]:
    """(what chooses the seed, what draws, what gathers) of samples that are the same on all."""
    if not run.script or not run.complete:
        return
    for gather in run.named(*_GATHERS):
        shared = collective(gather)
        mine = shared.given("tensor") or shared.given("input_tensor") if shared else None
        if shared is None or mine is None or shared.group is not None or not gather.everywhere:
            continue
        if mine.all_origins or mine.known or not _is_merged(run, gather):
            continue
        made = [thing.call for thing in mine.sources() if thing.call is not None]
        for draw in (call for call in made if is_noise(call) and call.everywhere):
            seeding = _own_seed(run, draw) or (
                _seed(run, draw) if any(map(_samples, made)) else None
            )
            if seeding is not None:
                yield seeding, draw, gather
                break


def _is_merged(run: Run, gather: RankCall) -> bool:
    """Whether what all have given is put together to one set of samples."""
    if gather.method == "all_gather_into_tensor":
        return True
    parts = gather.node_of(0 if gather.method == "all_gather" else 1, _GATHERS[gather.name])
    merges = (call for call in run.named(*_MERGES) if call.function is gather.function)
    return parts is not None and any(
        call.order > gather.order and text(call.node.args[0]) == text(parts)
        for call in merges
        if call.node.args
    )


def _own_seed(run: Run, draw: RankCall) -> RankCall | None:
    """What chooses the seed of the draw's own generator, where that is the same on all ranks."""
    own = alike(run, draw)
    return chosen(own) if own is not None else None


def _samples(call: RankCall) -> bool:
    """Whether a model answers without a gradient: no test that compares what the ranks have."""
    models = call.receiver.things if call.receiver is not None else ()
    return call.method == "__call__" and not call.grad and any(map(is_model, models))


def _seed(run: Run, draw: RankCall) -> RankCall | None:
    """The call that has given all ranks one seed, for draws from torch's own stream."""
    how, seeding = stream(run, draw, TORCH)
    if how is not Stream.SAME or seeding is None or not seeding.everywhere:
        return None
    return seeding if seeding.name in _SEEDS and draw.name.startswith("torch.") else None
