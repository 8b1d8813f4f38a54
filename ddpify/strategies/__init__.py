"""The ways to train one model on many ranks: what differs between them, as data for rules."""

from __future__ import annotations

from ddpify.settings import Settings
from ddpify.strategies.base import Strategy
from ddpify.strategies.ddp import DDP
from ddpify.strategies.fsdp import FSDP, FSDP_SHARDED, FSDP_SHARDED_ASYNC

_ALL = {one.name: one for one in (DDP, FSDP)}
_OF_CHECKPOINTS = {"sharded": FSDP_SHARDED, "sharded-async": FSDP_SHARDED_ASYNC}


def of(settings: Settings) -> Strategy:
    """The one that the user chose."""
    return _OF_CHECKPOINTS.get(settings.checkpoint) or _ALL[settings.strategy]
