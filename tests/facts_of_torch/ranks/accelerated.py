"""What Accelerate does on two ranks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch.utils.data import DataLoader, DistributedSampler

from tests.facts_of_torch.pairs import groupless, waiting, while_others_wait
from tests.facts_of_torch.ranks.small import Sum, batch, gradients, said


@groupless
def gathered_evaluation(rank: int) -> Any:
    """42 samples in batches of 8."""
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(range(42), batch_size=8))
    seen = {"gather": 0, "gather_for_metrics": 0}
    for one in loader:
        seen["gather"] += len(accelerator.gather(one))
        seen["gather_for_metrics"] += len(accelerator.gather_for_metrics(one))
    return seen


@groupless
def dealt_twice(rank: int) -> Any:
    """8 samples, with a DistributedSampler, and without."""
    accelerator = Accelerator(cpu=True)
    sampler = DistributedSampler(range(8), 2, rank, shuffle=False)
    twice = accelerator.prepare(DataLoader(range(8), batch_size=2, sampler=sampler))
    once = accelerator.prepare(DataLoader(range(8), batch_size=2))
    return [torch.cat([*loader]).tolist() for loader in (twice, once)]


@groupless
def backwards(rank: int) -> Any:
    """Four micro-batches: accelerator.backward(), and past it."""

    def seen(past: bool) -> list[Any]:
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
        model = accelerator.prepare(Sum())
        for _ in range(4):
            with accelerator.accumulate(model):
                loss = model(batch(rank)).sum()
                loss.backward() if past else accelerator.backward(loss)
        return gradients(model)

    return [seen(past=False), seen(past=True)]


@groupless
def not_prepared(rank: int) -> Any:
    """Trained for four micro-batches in windows of two; what was left out of prepare()."""

    def seen(*left: str) -> float:
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = Sum()
        inner = model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(torch.arange(1.0, 9.0).reshape(8, 1), batch_size=1)
        loader = accelerator.prepare(loader)
        if "model" not in left:
            model = accelerator.prepare(model)
        if "optimizer" not in left:
            optimizer = accelerator.prepare(optimizer)
        for x in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).sum() ** 2)
                optimizer.step()
                optimizer.zero_grad()
        return round(inner.layers["a"].weight.item(), 4)

    return {"nothing": seen(), "model": seen("model"), "optimizer": seen("optimizer")}


@groupless
def schedules(rank: int) -> Any:
    """StepLR(10) once an epoch; a linear decay over len(loader) * 3."""
    accelerator = Accelerator(cpu=True)
    optimizer = accelerator.prepare(torch.optim.SGD(Sum().parameters(), lr=1.0))
    loader = accelerator.prepare(DataLoader(torch.ones(16, 1), batch_size=2))
    steps = accelerator.prepare(torch.optim.lr_scheduler.StepLR(optimizer, 10))
    fell = 0
    for epoch in range(1, 11):
        optimizer.step()
        steps.step()
        if not fell and steps.get_last_lr()[0] < 1:
            fell = epoch
    other = accelerator.prepare(torch.optim.SGD(Sum().parameters(), lr=1.0))
    decay = torch.optim.lr_scheduler.LinearLR(other, 1.0, 0.0, total_iters=len(loader) * 3)
    decay, rates = accelerator.prepare(decay), []
    for _ in range(3):
        for _ in loader:
            other.step()
            decay.step()
        rates.append(round(decay.get_last_lr()[0], 4))
    return {"fell after": fell, "rates": rates}


def _on_rank_0(rank: int, action: Callable[[Accelerator], Any]) -> str:
    """What it ends with where rank 0 alone calls it, while the other is alive."""
    accelerator = Accelerator(cpu=True)
    if rank:
        while_others_wait()
        return ""
    return said(lambda: action(accelerator))


@waiting(2)
def gather_on_one_rank(rank: int) -> Any:
    return _on_rank_0(rank, lambda accelerator: accelerator.gather(torch.ones(1)))


@waiting(2)
def reduce_on_one_rank(rank: int) -> Any:
    return _on_rank_0(rank, lambda accelerator: accelerator.reduce(torch.ones(1)))


@waiting(2)
def prepare_on_one_rank(rank: int) -> Any:
    return _on_rank_0(rank, lambda accelerator: accelerator.prepare(Sum()))


@waiting(2)
def meeting_on_one_rank(rank: int) -> Any:
    return _on_rank_0(rank, lambda accelerator: accelerator.wait_for_everyone())


@waiting(2)
def numbered_state_on_one_rank(rank: int) -> Any:
    """save_state() where it numbers its folders."""
    accelerator = Accelerator(
        cpu=True,
        project_config=ProjectConfiguration("out", automatic_checkpoint_naming=True),
    )
    if rank:
        while_others_wait()
        return ""
    return said(accelerator.save_state)


def states_on_one_rank(rank: int) -> Any:
    """get_state_dict and save_state of a model that is whole; save and print on both."""
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Sum())
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        accelerator.print("once")
    accelerator.save({}, f"own{rank}.pt")
    if rank == 0:
        accelerator.get_state_dict(model)
        accelerator.save_state("state")
    total = accelerator.reduce(torch.ones(1)).item()
    written = sorted(path.name for path in Path("state").iterdir())
    return {
        "then": total,
        "random states": [name for name in written if "random" in name],
        "printed": text.getvalue().strip(),
        "saved": sorted(path.name for path in Path().glob("own*.pt")),
    }
