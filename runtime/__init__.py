"""The helpers that migrated projects get a copy of; ``ddp_utils`` is the file that is copied.

This package only names what is public, so that a test can hold the copy, ddpify's own list of
names and this one together.
"""

from __future__ import annotations

from .ddp_utils import (
    NullWriter,
    barrier,
    broadcast,
    cleanup_distributed,
    distributed_sampler,
    distributed_session,
    evaluation_sampler,
    fork_random_streams,
    get_local_rank,
    get_rank,
    get_world_size,
    gradient_sync,
    is_distributed,
    is_main_process,
    local_device,
    main_process_first,
    per_rank_batch_size,
    reduce_mean,
    reduce_meter,
    reduce_sum,
    save_on_main,
    set_epoch,
    setup_distributed,
    sync_buffers,
    unwrap,
    without_module_prefix,
    wrap_model,
)

__all__ = [
    "NullWriter",
    "barrier",
    "broadcast",
    "cleanup_distributed",
    "distributed_sampler",
    "distributed_session",
    "evaluation_sampler",
    "fork_random_streams",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "gradient_sync",
    "is_distributed",
    "is_main_process",
    "local_device",
    "main_process_first",
    "per_rank_batch_size",
    "reduce_mean",
    "reduce_meter",
    "reduce_sum",
    "save_on_main",
    "set_epoch",
    "setup_distributed",
    "sync_buffers",
    "unwrap",
    "without_module_prefix",
    "wrap_model",
]
