"""Which gradients DistributedDataParallel averages, and what it makes of the loss that is given."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

from tests.facts_of_torch.ranks.small import Sum, batch, gradients, said


def losses(rank: int) -> Any:
    """A mean, a sum and a mean over labels that count, over all four samples and over two each."""
    torch.manual_seed(0)
    x, y = torch.rand(4, 3), torch.tensor([0, -100, 1, 2])
    own = slice(2 * rank, 2 * rank + 2)
    weights = torch.rand(3, 3)

    def gradient(wrap: bool, rows: slice, targets: torch.Tensor, **options: Any) -> torch.Tensor:
        inner = nn.Linear(3, 3, bias=False)
        inner.weight.data.copy_(weights)
        model = DDP(inner) if wrap else inner
        F.cross_entropy(model(x[rows]), targets[rows], **options).backward()
        return inner.weight.grad

    def ratio(targets: torch.Tensor, **options: Any) -> list[float]:
        one = gradient(False, slice(None), targets, **options)
        many = gradient(True, own, targets, **options)
        quotient = many / one
        return [round(quotient.min().item(), 4), round(quotient.max().item(), 4)]

    whole = y.clamp(min=0)
    return {
        "mean": ratio(whole),
        "sum": ratio(whole, reduction="sum"),
        "ignored": ratio(y),
        "ignored, sum": ratio(y, reduction="sum"),
    }


class _Head(Sum):
    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self(x).sum()


def bypassed(rank: int) -> Any:
    """By a method of the inner module: alone, after a step, and after a forward of the wrapper."""
    model = DDP(_Head())
    model.module.loss(batch(rank)).backward()
    seen = [gradients(model)]
    model.zero_grad()
    model(batch(rank)).sum().backward()
    model.zero_grad()
    model.module.loss(batch(rank)).backward()
    seen.append(gradients(model))
    model.zero_grad()
    model(batch(rank))
    model.module.loss(batch(rank)).backward()
    return [*seen, gradients(model)]


def several_backwards(rank: int) -> Any:
    """Two losses, 1 and 2 times the batch; averaged, they add up to 4.5."""

    def seen(order: str) -> list[Any]:
        model = DDP(Sum())
        if order == "sum":
            (model(batch(rank)) + model(2 * batch(rank))).sum().backward()
        elif order == "in turn":
            for factor in (1, 2):
                model(factor * batch(rank)).sum().backward()
        elif order == "two forwards":
            outputs = [model(factor * batch(rank)).sum() for factor in (1, 2)]
            for output in outputs:
                output.backward()
        else:
            output = model(batch(rank)).sum()
            output.backward(retain_graph=True)
            (2 * output).backward()
        return gradients(model)

    return {order: seen(order) for order in ("sum", "in turn", "two forwards", "one forward")}


def asked_for(rank: int) -> Any:
    """torch.autograd.grad, instead of backward()."""
    model = DDP(Sum())
    (gradient,) = torch.autograd.grad(model(batch(rank)).sum(), [*model.parameters()])
    return gradient.item()


def gathered(rank: int) -> Any:
    """Embeddings that all_gather has brought, in a loss; without and with one's own put back."""
    weight = nn.Parameter(torch.ones(()))
    own = weight * batch(rank)
    rows = [torch.zeros(1, 1) for _ in range(2)]
    dist.all_gather(rows, own)
    loss = torch.cat(rows).sum()
    one_side = (own * torch.cat(rows)).sum()
    (of_one_side,) = torch.autograd.grad(one_side, weight, retain_graph=True)
    (of_both,) = torch.autograd.grad((own * own + own * rows[1 - rank]).sum(), weight)
    return {
        "requires_grad": [row.requires_grad for row in rows],
        "loss": said(loss.backward).partition("\n")[0],
        "one side": [of_one_side.item(), of_both.item()],
    }


def partners(rank: int) -> Any:
    """Which of all gathered rows are like this rank's own ones."""
    own = torch.eye(8)[4 * rank : 4 * rank + 4]
    rows = [torch.zeros(4, 8) for _ in range(2)]
    dist.all_gather(rows, own)
    return (own @ torch.cat(rows).T).argmax(1).tolist()


def reduced_loss(rank: int) -> Any:
    """all_reduce of the loss, then a division, before backward()."""
    model = DDP(Sum())
    loss = model(batch(rank)).sum()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.all_reduce(loss)
        (loss / 2).backward()
    return {
        "loss": loss.item(),
        "gradients": gradients(model),
        "warned": any(
            "c10d::allreduce_: an autograd kernel was not registered" in str(one.message)
            for one in caught
        ),
    }


def divided_again(rank: int) -> Any:
    """Gradients that the wrapper has averaged, before and after a division by two ranks."""
    model = DDP(Sum())
    model(batch(rank)).sum().backward()
    before = gradients(model)
    for parameter in model.parameters():
        parameter.grad.div_(dist.get_world_size())
    return before, gradients(model)


def averaged_again(rank: int) -> Any:
    """Gradients that the wrapper has averaged, before and after a mean over two ranks by hand."""
    model = DDP(Sum())
    model(batch(rank)).sum().backward()
    before = gradients(model)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())
    return before, gradients(model)


class _Recomputed(Sum):
    def __init__(self, reentrant: bool, times: int) -> None:
        super().__init__("a", "b")
        self.reentrant, self.times = reentrant, times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        block, x = self.layers["b"], self.layers["a"](x)
        for _ in range(self.times):
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def recomputed(rank: int) -> Any:
    def seen(reentrant: bool, unused: bool, times: int = 1, static: bool = False) -> Any:
        net = _Recomputed(reentrant, times)
        model = DDP(net, find_unused_parameters=unused, static_graph=static)
        return said(lambda: model(batch(rank)).sum().backward()) or gradients(model)

    return {
        "reentrant": seen(True, False),
        "reentrant, unused": seen(True, True),
        "not reentrant, unused": seen(False, True),
        "reentrant, twice": seen(True, False, 2),
        "not reentrant, twice": seen(False, False, 2),
        "reentrant, twice, static": seen(True, False, 2, True),
    }
