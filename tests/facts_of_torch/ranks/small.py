"""Models of which every gradient is known: 1 on rank 0, 2 on rank 1, 1.5 where it is averaged."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel as DDP


class Sum(nn.Module):
    """Adds up w x of the layers that a call names (of all, if none); all w are 1."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(1, 1, bias=False) for name in names or "a"})
        for weight in self.parameters():
            nn.init.ones_(weight)

    def forward(self, x: torch.Tensor, *names: str) -> torch.Tensor:
        return sum(self.layers[name](x) for name in names or self.layers)


def batch(rank: int) -> torch.Tensor:
    """1 on rank 0, 2 on rank 1."""
    return torch.full((1, 1), rank + 1.0)


def gradients(model: nn.Module) -> list[float | None]:
    """Of each weight, whole, None where there is none."""
    return [None if w.grad is None else _number(w.grad) for w in model.parameters()]


def _number(gradient: torch.Tensor) -> float:
    whole = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
    return round(whole.mean().item(), 4)


def said(action: Callable[[], Any]) -> str:
    """The error that it raises, in its first words; "" if none."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:600]
    return ""


def reductions(model: DDP) -> list[int]:
    """A list that grows with each all-reduce of a bucket of gradients."""
    seen: list[int] = []

    # torch looks at the annotations themselves, not at their names
    def hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen.append(bucket.index())
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)
    return seen
