"""Gradients that are accumulated, scaled or clipped."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.facts_of_torch.ranks.small import Sum, batch, gradients, reductions, said


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
