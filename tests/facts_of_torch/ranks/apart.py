"""Training steps that ranks do not take alike."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.facts_of_torch.pairs import waiting, while_others_wait
from tests.facts_of_torch.ranks.small import Sum, batch, gradients, said


def line_search(rank: int) -> Any:
    """LBFGS with strong_wolfe: gradients of all, the loss of one."""
    torch.manual_seed(0)
    x, y = torch.rand(8, 2), torch.rand(8, 1)
    x[4:] *= 3
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    own = slice(4 * rank, 4 * rank + 4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x[own]), y[own])
        loss.backward()
        return loss

    error = said(lambda: optimizer.step(closure))
    return {"error": error, "weights": model.module.weight.flatten().tolist()}


def average_of_one_rank(rank: int) -> Any:
    """An exponential average that rank 0 alone updates."""
    torch.manual_seed(0)
    model = DDP(nn.Linear(1, 1, bias=False))
    average = torch.optim.swa_utils.AveragedModel(model.module)
    start = average.module.weight.item()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(batch(rank)).sum().backward()
        optimizer.step()
        if rank == 0:
            average.update_parameters(model.module)
    return {"weight": model.module.weight.item(), "moved": average.module.weight.item() - start}


def rate_of_one_rank(rank: int) -> Any:
    """Rank 0 alone lowers its learning rate."""
    model = DDP(Sum())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(batch(rank)).sum().backward()
        optimizer.step()
        if rank == 0:
            optimizer.param_groups[0]["lr"] = 0.01
    return [*gradients(model), round(model.module.layers["a"].weight.item(), 4)]


def plateau_of_one_rank(rank: int) -> Any:
    """ReduceLROnPlateau with the loss of each rank: rank 0's gets worse, rank 1's better."""
    model = DDP(Sum())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for epoch in range(4):
        optimizer.zero_grad()
        model(batch(rank)).sum().backward()
        optimizer.step()
        plan.step(epoch if rank == 0 else -epoch)
    return [
        round(optimizer.param_groups[0]["lr"], 6),
        *gradients(model),
        round(model.module.layers["a"].weight.item(), 4),
    ]


@waiting(2)
def random_branch(rank: int) -> Any:
    """A layer that rank 1 leaves out, in three steps."""
    model = DDP(Sum("a", "b"))
    for _ in range(3):
        model(batch(rank), *("ab" if rank == 0 else "a")).sum().backward()


def random_branch_that_is_looked_for(rank: int) -> Any:
    """The same with find_unused_parameters=True."""
    model = DDP(Sum("a", "b"), find_unused_parameters=True)
    for _ in range(3):
        model.zero_grad()
        model(batch(rank), *("ab" if rank == 0 else "a")).sum().backward()
    return gradients(model)


@waiting(2)
def uneven_steps(rank: int) -> Any:
    """Nine samples, dealt with a stride: five steps and four."""
    model = DDP(Sum())
    for _ in range(rank, 9, 2):
        model(batch(rank)).sum().backward()
    if rank:
        while_others_wait()


def uneven_steps_meet_a_metric(rank: int) -> Any:
    """The fifth step of rank 0 meets the metric of rank 1, 10 of each; 20 is right."""
    model = DDP(Sum())
    for _ in range(rank, 9, 2):
        model.zero_grad()
        model(batch(rank)).sum().backward()
    metric = torch.tensor([10.0])
    if rank:
        dist.all_reduce(metric)
    return [*gradients(model), metric.item()]


def joined(rank: int) -> Any:
    """The same steps within Join, and the gradient of the last: rank 0's, over both ranks."""
    model = DDP(Sum())
    with Join([model]):
        for _ in range(rank, 9, 2):
            model.zero_grad()
            model(batch(rank)).sum().backward()
    return gradients(model)


def step_left_out(rank: int) -> Any:
    """Rank 0 leaves out its second batch, of 1, 2, 3; rank 1 has 10 each time, twice."""
    model, seen = DDP(Sum()), []
    for number in (1, 2, 3):
        if (rank, number) in {(0, 2), (1, 3)}:
            continue
        model.zero_grad()
        model(torch.full((1, 1), float(number if rank == 0 else 10))).sum().backward()
        seen += gradients(model)
    return seen
