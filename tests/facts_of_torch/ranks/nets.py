"""Models that are sharded, of which every number is known."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    """y = sum of w x over eight rows of weights, a half on each rank; all w are 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 8, bias=False)
        nn.init.ones_(self.layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum()


class Blocks(nn.Module):
    """Two blocks, each sharded, and a head that is the root's own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.head = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def in_blocks() -> Blocks:
    """Its blocks are units of their own."""
    model = Blocks()
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def sharded() -> Net:
    """One unit."""
    return fully_shard(Net())


def rows(rank: int) -> torch.Tensor:
    """Two rows, with a sum of 1 on rank 0 and of 2 on rank 1."""
    return torch.full((2, 1), (rank + 1) / 2)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    """One step on the rank's own rows."""
    optimizer.zero_grad()
    model(rows(rank)).sum().backward()
    optimizer.step()


def left(model: nn.Module) -> list[float]:
    """The mean of each weight, whole."""
    with torch.no_grad():
        return [round(w.full_tensor().mean().item(), 4) for w in model.parameters()]
