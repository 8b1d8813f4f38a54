"""Names that torch and Python have no more, or with a warning."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

from tests.facts_of_torch.ranks.small import said


def gone(rank: int) -> Any:
    wrap = importlib.import_module("torch.distributed.fsdp.wrap")
    multigpu = ("all_reduce_multigpu", "broadcast_multigpu", "all_gather_multigpu")
    return {
        "policy": hasattr(wrap, "default_auto_wrap_policy"),
        "multigpu": [name for name in multigpu if hasattr(torch.distributed, name)],
        "pipeline": said(lambda: importlib.import_module("torch.distributed.pipeline")),
    }


def arguments(rank: int) -> Any:
    """Those of FSDP1 that fully_shard has, and what is said of others."""
    old, new = (set(inspect.signature(one).parameters) for one in (FSDP, fully_shard))
    return {
        "both": sorted(old & new),
        "auto_wrap_policy": said(lambda: fully_shard(nn.Linear(2, 2), auto_wrap_policy=None)),
        "fsdp_auto_wrap_policy": said(lambda: FSDP(nn.Linear(2, 2), fsdp_auto_wrap_policy=None)),
    }


def reserved(rank: int) -> Any:
    """`async` as a keyword of a call."""
    return [
        said(lambda: compile("x.cuda(async=True)", "old.py", "exec")),
        said(lambda: torch.ones(1).to("cpu", non_blocking=True)),
    ]


def old_amp(rank: int) -> Any:
    """Each three times in one line, with Python's own filter: once on each rank."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            torch.cuda.amp.GradScaler(enabled=False)
        for _ in range(3):
            torch.cuda.amp.autocast(enabled=False)
        for _ in range(3):
            torch.cpu.amp.autocast(enabled=False)
    return [(one.category.__name__, str(one.message)[:30]) for one in caught]
