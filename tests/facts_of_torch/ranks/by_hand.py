"""What DistributedDataParallel does for a program that others leave to it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.facts_of_torch.ranks.small import Sum, batch, gradients, said


class _Projected(nn.Module):
    """Keeps what it has drawn in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        self.drawn = torch.randn(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.drawn


def drawn_constant(rank: int) -> Any:
    """Weights and a plain attribute, drawn with a seed for each rank, in the wrapper."""
    torch.manual_seed(rank)
    model = DDP(_Projected())
    return {"weight": model.module.layer.weight.item(), "drawn": model.module.drawn.item()}


def unequal_start(rank: int) -> Any:
    """Weights of each rank's own before and after steps by gradients that are averaged by hand."""
    torch.manual_seed(rank)
    model = nn.Linear(1, 1, bias=False)
    weights = [model.weight.item()]
    for _ in range(3):
        model.zero_grad()
        model(batch(rank)).sum().backward()
        dist.all_reduce(model.weight.grad)
        with torch.no_grad():
            model.weight -= 0.1 * model.weight.grad / 2
        weights.append(model.weight.item())
    return weights


def nothing_to_train(rank: int) -> Any:
    """A frozen model, and a loss without parameters."""
    frozen = Sum().requires_grad_(False)
    return [said(lambda: DDP(frozen)), said(lambda: DDP(nn.MSELoss()))]


def clipped_first(rank: int) -> Any:
    """Gradients of 1 and 2 that are clipped to 1.5 before they are averaged, and after it."""
    found = []
    for before in (True, False):
        model = Sum()
        model(batch(rank)).sum().backward()
        (weight,) = model.parameters()
        if before:
            nn.utils.clip_grad_norm_([weight], 1.5)
        dist.all_reduce(weight.grad)
        weight.grad /= 2
        if not before:
            nn.utils.clip_grad_norm_([weight], 1.5)
        found += gradients(model)
    return found


def summing_hook(rank: int) -> Any:
    """Gradients of 1 and 2 with a hook that adds them up, and without one."""

    def hook(state, bucket):  # torch refuses annotations that are texts
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    found = []
    for hooked in (True, False):
        model = DDP(Sum())
        if hooked:
            model.register_comm_hook(None, hook)
        model(batch(rank)).sum().backward()
        found += gradients(model)
    return found
