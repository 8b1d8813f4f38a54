"""Tensors that are as long as the longest sample of this rank: ``pad_sequence(…)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import BATCHES, DATA, Origin
from ddpify.ranks.words import LOADER

_PADS: Final = "torch.nn.utils.rnn.pad_sequence"


def longest(value: RankValue) -> Iterator[Origin]:
    """Why a tensor's second size is this rank's own: it is padded, or a batch that a
    ``collate_fn`` pads."""
    for thing in value.sources():
        call = thing.call
        if call is None:
            continue
        if thing.name == _PADS and call.result is not None:
            yield from (one for one in call.result.origins if one.kind == DATA)
        collate = call.arg(6, "collate_fn") if thing.name == LOADER else None
        functions = (t.info for t in collate.things if t.kind == "function") if collate else ()
        if any("pad_sequence" in one.called() for one in functions):
            yield Origin(DATA, BATCHES, call.site)
