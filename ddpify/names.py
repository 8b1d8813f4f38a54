"""The runtime's public names, so that the analysis knows its helpers when it meets them.

Constants only: the analysis must not import torch, and the runtime does. A test compares them
with ``runtime/ddp_utils.py``.
"""

from __future__ import annotations

from typing import Final

# The first line of a vendored copy starts so; version and hash follow.
HEADER_PREFIX: Final[str] = "# ddpify runtime "
# The same as a package, for projects that import it instead of a copy.
INSTALLED: Final[str] = "ddpify.runtime"

# Helpers in which every rank must take part, in the same order: under a condition that differs
# between ranks they hang, or pair with another collective and give wrong numbers.
COLLECTIVES: Final[frozenset[str]] = frozenset(
    {
        "barrier",
        "broadcast",
        "cleanup_distributed",
        "distributed_sampler",
        "distributed_session",
        "gather_batches",
        "gather_samples",
        "global_mean",
        "main_process_first",
        "per_rank_count",
        "reduce_mean",
        "reduce_meter",
        "reduce_sum",
        "save_on_main",
        "setup_distributed",
        "sync_buffers",
        "wrap_model",
    }
)

RUNTIME_NAMES: Final[frozenset[str]] = COLLECTIVES | {
    "NullWriter",
    "evaluation_sampler",
    "fork_random_streams",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "gradient_sync",
    "is_distributed",
    "is_main_process",
    "local_device",
    "per_rank_batch_size",
    "set_epoch",
    "unwrap",
    "without_module_prefix",
}
