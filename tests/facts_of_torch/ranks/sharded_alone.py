"""What one rank asks of a sharded model by itself."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.facts_of_torch.pairs import waiting, while_others_wait
from tests.facts_of_torch.ranks.nets import Net, in_blocks, rows, sharded, step
from tests.facts_of_torch.ranks.small import Sum


def _alone(rank: int, action: Any) -> None:
    if rank:
        while_others_wait()
    else:
        action()


@waiting(2)
def full_tensor_on_one_rank(rank: int) -> Any:
    model = sharded()
    _alone(rank, lambda: model.layer.weight.full_tensor())


@waiting(2)
def model_state_on_one_rank(rank: int) -> Any:
    model = sharded()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    _alone(rank, lambda: get_model_state_dict(model, options=options))


@waiting(2)
def checkpoint_on_one_rank(rank: int) -> Any:
    model = sharded()
    _alone(rank, lambda: dcp.save(model.state_dict(), checkpoint_id="saved"))


@waiting(2)
def clipping_on_one_rank(rank: int) -> Any:
    model = sharded()
    model(rows(rank)).sum().backward()
    _alone(rank, lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))


@waiting(2)
def consolidation_on_one_rank(rank: int) -> Any:
    model = DDP(Sum("a", "b"))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    step(model, optimizer, rank)
    _alone(rank, optimizer.consolidate_state_dict)


@waiting(2)
def state_of_fsdp1_on_one_rank(rank: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FSDP(Net(), device_id=torch.device("cpu"))
        _alone(rank, model.state_dict)


def shown_on_one_rank(rank: int) -> Any:
    """repr() and state_dict() of one rank, then a sum of both."""
    model = sharded()
    if rank == 0:
        text = repr(model) + repr(model.layer.weight) + str([*model.state_dict()])
        assert text
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def _evaluated(rank: int, model: nn.Module, x: torch.Tensor) -> None:
    """Under no_grad, three forwards on rank 0 and two on rank 1."""
    with torch.no_grad():
        for _ in range(3 - rank):
            model(x)


@waiting(2)
def uneven_evaluation(rank: int) -> Any:
    _evaluated(rank, in_blocks(), torch.ones(2, 4))
    if rank:
        while_others_wait()


def uneven_evaluation_of_a_root(rank: int) -> Any:
    """The root has no blocks beside it, and keeps its weights after a forward."""
    _evaluated(rank, sharded(), torch.ones(2, 1))
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()
