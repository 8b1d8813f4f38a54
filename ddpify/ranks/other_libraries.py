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
# The parameters of those in which what the ranks give has to fit: by name, what is sent first.
_MPI_PARAMETERS: Final = {
    "bcast": "obj root",
    "Bcast": "buf root",
    "scatter": "sendobj root",
    "Scatter": "sendbuf recvbuf root",
    "gather": "sendobj root",
    "Gather": "sendbuf recvbuf root",
    "reduce": "sendobj op root",
    "Reduce": "sendbuf recvbuf op root",
    "allreduce": "sendobj op",
    "Allreduce": "sendbuf recvbuf op",
    "allgather": "sendobj",
    "Allgather": "sendbuf recvbuf",
}
PARAMETERS: Final = {f"{MPI}{method}": given for method, given in _MPI_PARAMETERS.items()}
# These give something on one rank alone, and None on the others: the positions of the rank.
ROOTED: Final = {f"{MPI}gather": 1, f"{MPI}reduce": 2}
RANKS: Final = _named(MPI, "Get_rank")
SIZES: Final = _named(MPI, "Get_size")
