"""When DistributedDataParallel sends rank 0's buffers, and who waits for whom then."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.facts_of_torch.pairs import waiting, while_others_wait
from tests.facts_of_torch.ranks.small import Sum, gradients, said


class _Marked(nn.Module):
    """A weight, and a buffer in which a rank can see whether rank 0's has come."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        self.register_buffer("mark", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def _sent(model: DDP, rank: int, *, learn: bool = False) -> bool:
    """Whether a forward brings rank 0's buffer: all mark their own before."""
    mark = model.module.mark
    mark.fill_(rank)
    out = model(torch.ones(1, 1))
    came = torch.tensor([float(mark.item() == 0)])
    if learn:
        out.sum().backward()
    dist.all_reduce(came)
    return came.item() == 2


def forwards(rank: int) -> Any:
    """Whether each of three forwards has rank 0's buffers, in each surrounding."""
    surroundings = {
        "train": (True, torch.enable_grad),
        "eval": (False, torch.enable_grad),
        "train no_grad": (True, torch.no_grad),
        "eval no_grad": (False, torch.no_grad),
        "inference": (False, torch.inference_mode),
    }
    seen: dict[str, list[bool]] = {}
    for name, (training, context) in surroundings.items():
        for after in ("wrap", "step"):
            model = DDP(_Marked())
            if after == "step":
                _sent(model, rank, learn=True)
            model.train(training)
            with context():
                seen[f"{name} after {after}"] = [_sent(model, rank) for _ in range(3)]
    return seen


def under_no_sync(rank: int) -> Any:
    """Three micro-batches under no_sync(), then two that are synchronised."""
    model = DDP(_Marked())
    seen = []
    for quiet in (True, True, True, False, False):
        with model.no_sync() if quiet else nullcontext():
            seen.append(_sent(model, rank, learn=True))
    return seen


def first_of_training_after_an_evaluation(rank: int) -> Any:
    """Evaluated under no_grad; then two steps of training."""
    model = DDP(_Marked())
    _sent(model, rank, learn=True)
    with torch.no_grad():
        evaluated = [_sent(model, rank) for _ in range(2)]
    return evaluated, [_sent(model, rank, learn=True) for _ in range(2)]


def own_statistics(rank: int) -> Any:
    """Batch norm after two steps on other data: after the forward, and inside of the next one."""
    model = DDP(nn.BatchNorm1d(1, momentum=1.0))
    inner = model.module
    seen = []
    for step in range(2):
        model(torch.tensor([[rank + step + 1.0], [rank + step + 1.0]])).sum().backward()
        seen.append(inner.running_mean.item())
    return seen


def unequal_evaluations(rank: int) -> Any:
    """Rank 0 has three batches, rank 1 one: under no_grad only the first one communicates."""
    model = DDP(_Marked())
    _sent(model, rank, learn=True)
    with torch.no_grad():
        for _ in range(1 if rank else 3):
            model(torch.ones(1, 1))
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


@waiting(2)
def unequal_evaluations_with_gradients(rank: int) -> Any:
    """The same in eval mode without no_grad."""
    model = DDP(_Marked())
    _sent(model, rank, learn=True)
    model.eval()
    for _ in range(1 if rank else 3):
        model(torch.ones(1, 1))
    if rank:
        while_others_wait()


def _evaluated_by_rank_0(rank: int) -> None:
    model = DDP(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)))
    model(torch.rand(4, 16)).sum().backward()
    if rank == 0:
        with torch.no_grad():
            model(torch.rand(4, 16))


@waiting(2)
def evaluation_meets_a_broadcast(rank: int) -> Any:
    """Rank 0 alone evaluates after a step; the next collective of rank 1 is of 12 bytes."""
    _evaluated_by_rank_0(rank)
    dist.broadcast(torch.ones(3), src=0)


@waiting(2)
def evaluation_meets_a_sum(rank: int) -> Any:
    _evaluated_by_rank_0(rank)
    dist.all_reduce(torch.ones(3))


@waiting(2)
def evaluation_meets_the_end(rank: int) -> Any:
    _evaluated_by_rank_0(rank)


@waiting(2)
def evaluation_of_one_rank_alone(rank: int) -> Any:
    """The same, and rank 1 has no collective until the time is up."""
    model = DDP(_Marked())
    _sent(model, rank, learn=True)
    if rank == 0:
        with torch.no_grad():
            model(torch.ones(1, 1))
        dist.barrier()
    else:
        while_others_wait()


def second_evaluation_of_one_rank(rank: int) -> Any:
    """All evaluate once under no_grad; what rank 0 evaluates after that is its own matter."""
    model = DDP(_Marked())
    with torch.no_grad():
        model(torch.ones(1, 1))
        if rank == 0:
            model(torch.ones(1, 1))
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def _made_up(rank: int, steps: int) -> float:
    """Rank 0 alone evaluates behind some steps, and the next step of both follows."""
    model = DDP(_Marked())
    for _ in range(steps):
        model(torch.ones(1, 1)).sum().backward()
    if rank == 0:
        with torch.no_grad():
            model(torch.ones(1, 1))
    for _ in range(2):
        model(torch.ones(1, 1)).sum().backward()
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def evaluation_that_the_next_step_makes_up_for(rank: int) -> Any:
    return _made_up(rank, 2)


@waiting(2)
def the_same_behind_the_first_step(rank: int) -> Any:
    """The buckets are agreed on in the next step of rank 0, and before the buffers by rank 1."""
    return _made_up(rank, 1)


def _of_rank_0(rank: int, model: DDP, net: nn.Module, steps: int, *, learn: bool) -> float:
    """Rank 0 alone calls ``net`` after some steps of ``model``. 2.0 where nothing was sent."""
    for _ in range(steps):
        model(torch.ones(1, 1)).sum().backward()
    if rank == 0:
        with torch.set_grad_enabled(learn):
            net(torch.ones(1, 1))
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def quiet_forwards(rank: int) -> Any:
    """Of rank 0 alone: without buffers, without broadcast_buffers, of the inner module."""
    bare, quiet, inner = DDP(Sum()), DDP(_Marked(), broadcast_buffers=False), DDP(_Marked())
    later = DDP(Sum())
    return {
        "no buffers, no_grad": _of_rank_0(rank, bare, bare, 1, learn=False),
        "no broadcast, no_grad": _of_rank_0(rank, quiet, quiet, 1, learn=False),
        "inner": _of_rank_0(rank, inner, inner.module, 1, learn=True),
        "no buffers, later": _of_rank_0(rank, later, later, 2, learn=True),
    }


@waiting(2)
def second_forward_without_buffers(rank: int) -> Any:
    """With gradients, the forward after the first backward: DDP agrees on its buckets."""
    model = DDP(Sum())
    return _of_rank_0(rank, model, model, 1, learn=True)


@waiting(2)
def sharded_forward_of_one_rank(rank: int) -> Any:
    """fully_shard gathers the weights, under no_grad, too."""
    model = nn.Linear(4, 4)
    fully_shard(model)
    if rank:
        while_others_wait()
    else:
        with torch.no_grad():
            model(torch.ones(1, 4))


def two_forwards(rank: int) -> Any:
    """Batch norm, two forwards and one backward: no error on the CPU."""
    model = DDP(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    first = model(torch.rand(4, 2))
    error = said(lambda: (first + model(torch.rand(4, 2))).sum().backward())
    marked = DDP(_Marked())
    return {"error": error, "sent": [_sent(marked, rank) for _ in range(2)]}


def two_forwards_that_use_the_buffer(rank: int) -> Any:
    """The first forward saves the buffer, a 1, for its backward; the second brings rank 0's 5."""

    class Scaled(_Marked):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.mark

    model = DDP(Scaled())
    model.module.mark.fill_(1.0)
    first = model(torch.ones(1, 1)).sum()
    if rank == 0:
        model.module.mark.data.fill_(5.0)  # `.data`: autograd does not see it
    model(torch.ones(1, 1))
    error = said(first.backward)
    return [error, gradients(model)]
