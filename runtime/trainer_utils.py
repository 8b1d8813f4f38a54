"""What the processes of Lightning's Trainer agree on before ``fit`` opens a process group.

In a project these helpers are part of its one ``ddp_utils``.
"""

from __future__ import annotations

import importlib
import itertools
import os
import pickle
import sys
from typing import Any

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

_asked = itertools.count()  # alike on all ranks, which ask in the same order
_stores = list[Any]()  # kept: the Trainer's group meets at the same port


# ---- Lightning


def from_rank_zero(value: Any) -> Any:
    """Rank 0's ``value``, a picklable object, on every rank, also before ``fit`` (*collective*).

    Processes that Lightning starts inherit it; those of torchrun, Slurm, … ask where they meet.
    """
    if dist.is_initialized():
        boxes = [value]
        dist.broadcast_object_list(boxes)
        return boxes[0]
    key = f"FROM_RANK_ZERO_{next(_asked)}"
    started = _started_by_others()
    if started is not None and started.world_size() > 1:
        return _by_store(key, value, started)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        if os.environ.get("NODE_RANK", "0") != "0":
            raise RuntimeError("nodes started by hand cannot agree: use torchrun or srun")
        os.environ[key] = pickle.dumps(value).hex()
        return value
    return pickle.loads(bytes.fromhex(os.environ[key]))


def _started_by_others() -> Any:
    """What started the processes, as the Trainer will find it; None: it starts them itself."""
    package = "lightning.fabric" if "lightning.fabric" in sys.modules else "lightning_fabric"
    known = importlib.import_module(f"{package}.plugins.environments")
    kinds = ("TorchElastic", "SLURM", "LSF", "MPI")
    found = (getattr(known, f"{kind}Environment") for kind in kinds)
    return next((kind() for kind in found if kind.detect()), None)


def _by_store(key: str, value: Any, started: Any) -> Any:
    if not _stores:
        os.environ["MASTER_ADDR"] = started.main_address
        os.environ["MASTER_PORT"] = str(started.main_port)
        meeting = rendezvous("env://", started.global_rank(), started.world_size())
        _stores.append(next(iter(meeting))[0])
    if started.global_rank() == 0:
        _stores[0].set(key, pickle.dumps(value))
        return value
    return pickle.loads(_stores[0].get(key))
