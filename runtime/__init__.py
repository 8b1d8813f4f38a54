"""The helpers that migrated projects get a copy of: ``ddp_utils`` and, on need, ``ddp_metrics``.

This package only names what is public, so that a test can hold the copies, ddpify's own list of
names and this one together.
"""

from __future__ import annotations

from .ddp_metrics import (
    gather_batches,
    gather_samples,
    global_mean,
    per_rank_count,
    reduce_mean,
    reduce_meter,
    reduce_sum,
    whole_batch,
)
from .ddp_utils import (
    NullWriter,
    barrier,
    begin_epoch,
    broadcast,
    cleanup_distributed,
    distributed_sampler,
    distributed_session,
    evaluation_sampler,
    evaluation_share,
    fork_random_streams,
    gather_objects,
    get_local_rank,
    get_rank,
    get_world_size,
    gradient_sync,
    is_distributed,
    is_main_process,
    local_device,
    main_process_first,
    per_rank_batch_size,
    save_on_main,
    setup_distributed,
    sync_buffers,
    unwrap,
    without_module_prefix,
    wrap_model,
)
from .ddp_utils import set_epoch as set_epoch

__all__ = [
    "NullWriter",
    "barrier",
    "begin_epoch",
    "broadcast",
    "cleanup_distributed",
    "distributed_sampler",
    "distributed_session",
    "evaluation_sampler",
    "evaluation_share",
    "fork_random_streams",
    "gather_batches",
    "gather_objects",
    "gather_samples",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "global_mean",
    "gradient_sync",
    "is_distributed",
    "is_main_process",
    "local_device",
    "main_process_first",
    "per_rank_batch_size",
    "per_rank_count",
    "reduce_mean",
    "reduce_meter",
    "reduce_sum",
    "save_on_main",
    "setup_distributed",
    "sync_buffers",
    "unwrap",
    "whole_batch",
    "without_module_prefix",
    "wrap_model",
]
