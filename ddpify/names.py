"""The runtime's public names, so that the analysis knows its helpers when it meets them.

Constants only: the analysis must not import torch, and the runtime does. A test compares them
with the files in ``runtime/``.
"""

from __future__ import annotations

from typing import Final

# The first line of a vendored copy starts so; version and seal follow.
HEADER_PREFIX: Final[str] = "# ddpify runtime "
# All helpers, whichever file they are in, for projects that import them instead of a copy.
INSTALLED: Final[str] = "ddpify.runtime"

# The files, and what the second one holds; all others are in the first.
CORE: Final[str] = "ddp_utils"
METRICS: Final[str] = "ddp_metrics"
SHARDS: Final[str] = "fsdp_utils"  # a part of the first file, in a copy
STORED: Final[str] = "fsdp_checkpoints"  # so is this
FITTED: Final[str] = "trainer_utils"  # and this, for Lightning
METRICS_NAMES: Final[frozenset[str]] = frozenset(
    {
        "average_statistics",
        "gather_batches",
        "gather_samples",
        "global_copy",
        "global_mean",
        "global_meter",
        "loss_terms",
        "order_share",
        "own_share",
        "per_rank_count",
        "reduce_entries",
        "reduce_mean",
        "reduce_meter",
        "reduce_sum",
        "share_batches",
        "share_evaluation",
        "share_loading",
        "share_training",
        "split_batches",
        "through_wrapper",
        "whole_batch",
    }
)

SHARDS_NAMES: Final[frozenset[str]] = frozenset(
    {
        "backward_on_all",
        "built_on_main",
        "class_of",
        "even_batches",
        "ready_to_shard",
        "unsharded",
        "whole_model",
        "whole_tensor",
    }
)
STORED_NAMES: Final[frozenset[str]] = frozenset(
    {"async_save_sharded", "load_sharded", "save_sharded"}
)
FITTED_NAMES: Final[frozenset[str]] = frozenset({"from_rank_zero"})

# Helpers in which every rank must take part, in the same order: under a condition that differs
# between ranks they hang, or pair with another collective and give wrong numbers.
COLLECTIVES: Final[frozenset[str]] = (
    METRICS_NAMES
    - {
        "average_statistics",
        "loss_terms",
        "order_share",
        "share_batches",
        "share_evaluation",
        "share_loading",
        "share_training",
        "split_batches",
        "through_wrapper",
    }
) | {
    "async_save_sharded",
    "average_gradients",
    "backward_on_all",
    "barrier",
    "broadcast",
    "built_on_main",
    "cleanup_distributed",
    "distributed_sampler",
    "distributed_session",
    "even_batches",
    "from_rank_zero",
    "gather_objects",
    "main_process_first",
    "map_style",
    "ready_to_shard",
    "same_draws",
    "save_on_main",
    "save_sharded",
    "setup_distributed",
    "share_random_streams",
    "sync_buffers",
    "unsharded",
    "whole_model",
    "whole_tensor",
    "with_rank_streams",
    "wrap_model",
}

# Of these: what gives the sum over the ranks, and the mean.
SUMS: Final = frozenset({"reduce_sum", "reduce_entries"})
MEANS: Final = frozenset({"reduce_mean"})
# What differs between ranks though all of them take part.
OWN: Final = frozenset({"own_share"})
# What writes checkpoints, and of these what has each rank write its shards.
OF_SHARDS: Final = frozenset({"async_save_sharded", "save_sharded"})
OF_CHECKPOINTS: Final = frozenset(f"{INSTALLED}.{one}" for one in {"save_on_main", *OF_SHARDS})
# What gives each rank its part of a loader's batches.
OF_LOADERS: Final = frozenset({"share_batches", "share_evaluation", "share_training"})
# What wraps a model for DDP.
OF_REPLICAS: Final = "wrap_model"
# What makes a wrapped model divide the batches that it is given.
OF_MODELS: Final = "split_batches"

RUNTIME_NAMES: Final[frozenset[str]] = COLLECTIVES | {
    "NullWriter",
    "average_statistics",
    "batch_weight",
    "begin_epoch",
    "class_of",
    "evaluation_sampler",
    "evaluation_share",
    "fork_random_streams",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "gradient_sync",
    "is_distributed",
    "is_main_process",
    "load_sharded",
    "local_device",
    "loss_terms",
    "new_pass",
    "order_share",
    "per_rank_accumulation",
    "per_rank_batch_size",
    "print_on_main",
    "restore_rank_streams",
    "scaled_lr",
    "share_batches",
    "share_evaluation",
    "share_loading",
    "share_training",
    "split_batches",
    "through_wrapper",
    "unfrozen",
    "unsharded",
    "unwrap",
    "warm_up",
    "whole_loader",
    "without_module_prefix",
}

# What projects that were migrated earlier call, and what it is called now.
EARLIER_NAMES: Final[tuple[tuple[str, str], ...]] = (("set_epoch", "begin_epoch"),)


def module_of(core: str, name: str) -> str:
    """The module to import a helper from, where ``core`` is that of the first file."""
    return metrics_beside(core) if name in METRICS_NAMES and core != INSTALLED else core


def metrics_beside(core: str) -> str:
    """The second file's module: ``core.ddp_utils`` gives ``core.ddp_metrics``."""
    package, dot, stem = core.rpartition(".")
    own = stem.replace(CORE, METRICS) if CORE in stem else f"{stem}_metrics"
    return f"{package}{dot}{own}"


def current(name: str) -> str:
    """A dotted name, where it is an earlier one of a helper as it is today."""
    owner, _, tail = name.rpartition(".")
    return f"{owner}.{dict(EARLIER_NAMES).get(tail, tail)}" if owner == INSTALLED else name
