"""The collectives of Horovod, mpi4py and DeepSpeed, by full name.

Sources: the API references of the three (horovod.torch; mpi4py.MPI.Comm; deepspeed.DeepSpeedEngine,
whose guide says that all processes call ``save_checkpoint``, not just that of rank 0).
"""

from __future__ import annotations

from typing import Final

HOROVOD, MPI, ENGINE = "horovod.torch.", "mpi4py.MPI.COMM_WORLD.", "deepspeed.DeepSpeedEngine"
LAUNCHERS: Final = ("horovod.", "mpi4py.", "deepspeed.")


def _named(prefix: str, methods: str) -> frozenset[str]:
    return frozenset(prefix + method for method in methods.split())


# After these the result is the same on all ranks.
AGREEING: Final = _named(
    HOROVOD,
    "allreduce allreduce_ grouped_allreduce allgather allgather_object broadcast broadcast_"
    " broadcast_object",
) | _named(MPI, "bcast allreduce allgather")
CALLS: Final = (
    AGREEING
    | _named(
        HOROVOD,
        "broadcast_parameters broadcast_optimizer_state alltoall reducescatter barrier"
        " allreduce_async allreduce_async_ allgather_async broadcast_async broadcast_async_",
    )
    | _named(
        MPI,
        "Bcast Allreduce Allgather Allgatherv gather Gather scatter Scatter reduce Reduce alltoall"
        " Alltoall barrier Barrier",
    )
    | _named(f"{ENGINE}.", "save_checkpoint load_checkpoint save_16bit_model step")
)
# These give something on one rank alone, and None on the others: the positions of the rank.
ROOTED: Final = {f"{MPI}gather": 1, f"{MPI}reduce": 2}
RANKS: Final = _named(MPI, "Get_rank")
SIZES: Final = _named(MPI, "Get_size")
