"""The ways to train one model on many ranks: what differs between them, as data for rules."""

from __future__ import annotations

from ddpify.settings import Settings
from ddpify.strategies.base import Strategy
from ddpify.strategies.ddp import DDP
from ddpify.strategies.fsdp import FSDP, FSDP_SHARDED

_ALL = {one.name: one for one in (DDP, FSDP)}


def of(settings: Settings) -> Strategy:
    """The one that the user chose."""
    sharded = settings.checkpoint == "sharded"
    return FSDP_SHARDED if sharded else _ALL[settings.strategy]
