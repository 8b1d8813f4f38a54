"""A shard on each rank: ``fully_shard`` gathers weights for the time of a block's computing."""

from __future__ import annotations

from dataclasses import replace

from ddpify.strategies.base import Strategy

FSDP = Strategy("fsdp", inner="", state="unsharded({})", kept="unsharded({}, everywhere=True)")
# With checkpoints to which each rank writes its shards.
FSDP_SHARDED = replace(FSDP, save="save_sharded", load="load_sharded")
FSDP_SHARDED_ASYNC = replace(FSDP_SHARDED, save="async_save_sharded")
