"""Which gradients DistributedDataParallel averages, and what it makes of the loss that is given."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

from tests.facts_of_torch.pairs import waiting, while_others_wait
from tests.facts_of_torch.ranks.small import Sum, batch, gradients, reductions, said


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


def _accumulated(rank: int, quiet: str, micro: int = 4) -> list[Any]:
    """All-reduces of two windows of backwards, and the gradient of the last."""
    model = DDP(Sum())
    count = reductions(model)
    for _ in range(2):
        model.zero_grad()
        for number in range(micro):
            last = number == micro - 1
            around = model.no_sync if quiet and not last else nullcontext
            with around() if "forward" in quiet else nullcontext():
                loss = model(batch(rank)).sum()
            with around() if "backward" in quiet else nullcontext():
                loss.backward()
    return [len(count), *gradients(model)]


def accumulation(rank: int) -> Any:
    """Where no_sync() stands: nowhere, around both, around one of them."""
    places = ("", "forward backward", "backward", "forward")
    return {place: _accumulated(rank, place) for place in places}


def one_late(rank: int) -> Any:
    """Synchronised by i % 4, stepped by (i + 1) % 4: the gradients at the steps, 1.5 each."""
    model, seen = DDP(Sum()), []
    for number in range(8):
        with nullcontext() if number % 4 == 0 else model.no_sync():
            model(batch(rank)).sum().backward()
        if (number + 1) % 4 == 0:
            seen += gradients(model)
            model.zero_grad()
    return seen


def window_left_over(rank: int) -> Any:
    """Two epochs of 10 batches in windows of 4; the gradients at the steps, and what is left."""
    model, steps, left = DDP(Sum()), [], []
    for _ in range(2):
        for number in range(10):
            stepping = (number + 1) % 4 == 0
            with nullcontext() if stepping else model.no_sync():
                model(batch(rank)).sum().backward()
            if stepping:
                steps += gradients(model)
                model.zero_grad()
        left += gradients(model)
    return {"steps": steps, "left": left}


def not_divided(rank: int) -> Any:
    """Four micro-batches with a mean each, against one batch of all."""
    inputs = torch.arange(8.0).reshape(8, 1)
    one, many = Sum(), Sum()
    one(inputs).mean().backward()
    for part in inputs.split(2):
        many(part).mean().backward()
    return gradients(many)[0] / gradients(one)[0]


def clipped_before_unscaling(rank: int) -> Any:
    """The length of a step of lr 1 whose gradient of 3 is clipped to 1, in each order."""

    def step(unscale: bool, **scale: float) -> float:
        model = Sum()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scaler = torch.amp.GradScaler("cpu", **scale)
        scaler.scale(model(torch.full((1, 1), 3.0)).sum()).backward()
        if unscale:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        return 1 - model.layers["a"].weight.item()

    return [step(True), step(False, init_scale=1024.0), step(False)]


def scaler_that_scaled_nothing(rank: int) -> Any:
    model = Sum()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(batch(rank)).sum().backward()
    return said(lambda: torch.amp.GradScaler("cpu").step(optimizer))


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


class _Recomputed(Sum):
    def __init__(self, reentrant: bool) -> None:
        super().__init__("a", "b")
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        block = self.layers["b"]
        return checkpoint(block, self.layers["a"](x), use_reentrant=self.reentrant)


def recomputed(rank: int) -> Any:
    def seen(reentrant: bool, unused: bool) -> Any:
        model = DDP(_Recomputed(reentrant), find_unused_parameters=unused)
        return said(lambda: model(batch(rank)).sum().backward()) or gradients(model)

    return {
        "reentrant": seen(True, False),
        "reentrant, unused": seen(True, True),
        "not reentrant, unused": seen(False, True),
    }


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
