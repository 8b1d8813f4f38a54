"""A shard on each rank: ``fully_shard`` gathers weights for the time of a block's computing."""

from __future__ import annotations

from ddpify.strategies.base import Strategy

FSDP = Strategy("fsdp", inner="", state="unsharded({})", kept="unsharded({}, everywhere=True)")
