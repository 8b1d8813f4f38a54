"""How large a tensor is: ``x.size(0)``, ``torch.numel(x)``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ddpify.ranks import mixing, picked
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import BATCHES, IDENTITY, PART, PIECE, RANK, STRIDE
from ddpify.ranks.padded import longest
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result

_SIZES: Final = frozenset("size numel nelement dim".split())
_PICKED_BY_RANK: Final = (PART, PIECE, STRIDE)


def size(one: RankCall, of: RankValue) -> RankValue | None:
    """``x.size(0)``, as ``x.shape[0]``: ranks have equally many samples, which are this rank's."""
    if one.method not in _SIZES or (of.has(RANK) and not _is_batch(of)):
        return None
    made = result(one)
    own = picked.in_number(of) if one.method != "dim" else frozenset()
    told = not of.has(RANK)
    agreed = frozenset(origin for origin in made.origins if told and origin.kind in IDENTITY)
    axis = one.arg(0, "dim")
    first = axis is None or axis.constant in (None, 0)
    value = replace(made, origins=agreed.union(own, () if first else longest(of)))
    return mixing.counted(value, of, one.site) if first else value


def _is_batch(value: RankValue) -> bool:
    """Whether it is what a loader deals, and no part of it that the rank picks: of a sampler that
    is given the rank, what it deals is told by it."""
    said = {origin.what for origin in value.origins}
    return BATCHES in said and said.isdisjoint(_PICKED_BY_RANK)


def _numel(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue | None:
    """``torch.numel(x)``, as ``x.numel()``."""
    return size(one, one.args[0]) if one.args else None


HANDLERS: Final[dict[str, Callable[[RankMachine, RankFrame, RankCall], RankValue | None]]] = {
    "torch.numel": _numel
}
