"""What fully_shard does with weights, gradients, states and files."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from tests.facts_of_torch.ranks.nets import Net, left, rows, sharded, step
from tests.facts_of_torch.ranks.small import gradients, said


def shards(rank: int) -> Any:
    """What the object is, and where its weights are."""
    net = Net()
    model = fully_shard(net)
    wrapped = {"same object": model is net, "class": type(model).__name__}
    return {
        **wrapped,
        "own rows": model.layer.weight.to_local().shape[0],
        "user's": isinstance(model, Net),
    }


def averaged(rank: int) -> Any:
    model = sharded()
    model(rows(rank)).sum().backward()
    return gradients(model)


def other_methods(rank: int) -> Any:
    """A method, .forward() and a layer: before any forward, and after one of the model."""

    def seen(call: Any) -> list[Any]:
        model = sharded()
        first = said(lambda: call(model).sum().backward())
        model = sharded()
        model(rows(rank)).sum().backward()
        model.zero_grad()
        model(rows(rank))
        after = said(lambda: call(model).sum().backward())
        return [first, after or gradients(model)]

    registered = sharded()
    register_fsdp_forward_method(registered, "loss")
    registered.loss(rows(rank)).backward()
    return {
        "method": seen(lambda model: model.loss(rows(rank))),
        "forward": seen(lambda model: model.forward(rows(rank))),
        "layer": seen(lambda model: model.layer(rows(rank))),
        "registered": gradients(registered),
    }


def late_method(rank: int) -> Any:
    """A method right after a whole step of the model."""
    model = sharded()
    model(rows(rank)).sum().backward()
    model.zero_grad()
    error = said(lambda: model.loss(rows(rank)).backward())
    return error or gradients(model)


def optimizer_before(rank: int) -> Any:
    """An optimizer of the weights as they were before they were sharded."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(rows(rank)).sum().backward()
        optimizer.step()
    late = sharded()
    step(late, torch.optim.SGD(late.parameters(), lr=0.1), rank)
    return {"before": left(model), "gradients": gradients(model), "after": left(late)}


def optimizer_before_fsdp1(rank: int) -> Any:
    """FSDP1 on the CPU, with and without use_orig_params: what is left of the sum of weights."""

    def seen(**options: bool) -> float:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        model = FSDP(net, device_id=torch.device("cpu"), **options)
        step(model, optimizer, rank)
        with FSDP.summon_full_params(model):
            return round(net.layer.weight.mean().item(), 4)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [seen(), seen(use_orig_params=True)]


def parts_of_numbers(rank: int) -> Any:
    """Reductions of a weight whose rows are 1 … 8: of both ranks 36, 4.5, 8, 14.2829."""
    model = sharded()
    with torch.no_grad():
        model.layer.weight.to_local().copy_(torch.arange(4.0).reshape(4, 1) + 1 + 4 * rank)
    weight = model.layer.weight.detach()
    numbers = {
        "sum": weight.sum(),
        "mean": weight.mean(),
        "max": weight.max(),
        "norm": weight.norm(),
    }
    item = {name: round(number.item(), 4) for name, number in numbers.items()}
    whole = {name: round(number.full_tensor().item(), 4) for name, number in numbers.items()}
    model(rows(rank)).sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return {"item": item, "whole": whole, "clipped": round(norm.item(), 4)}


def stale_weights(rank: int) -> Any:
    """A forward between backward and step, and the loss of the next one; all w end at .85."""

    def seen(between: bool, **options: bool) -> list[float]:
        model = fully_shard(Net(), **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(rows(rank)).sum().backward()
        if between:
            with torch.no_grad():
                model(rows(rank))
        optimizer.step()
        used = round(model(torch.ones(2, 1)).mean().item(), 4)
        model.reshard()
        return [used, *left(model)]

    return {
        "between": seen(True),
        "not between": seen(False),
        "reshard": seen(True, reshard_after_forward=True),
    }


def never_reduced(rank: int) -> Any:
    """set_requires_gradient_sync(False), for two steps; then taken back."""
    model = sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.set_requires_gradient_sync(False)
    for _ in range(2):
        model(rows(rank)).sum().backward()
        optimizer.step()
    quiet = [gradients(model), left(model)]
    model.set_requires_gradient_sync(True)
    model(rows(rank)).sum().backward()
    return [*quiet, gradients(model), hasattr(model, "no_sync")]


def scaled(rank: int) -> Any:
    """An infinite gradient in rank 0's shard alone, with torch.amp.GradScaler."""
    model = sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(model(rows(rank)).sum()).backward()
    if rank == 0:
        model.layer.weight.grad.to_local()[0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    return [scaler.get_scale(), *left(model)]


def scaled_by_fsdp1(rank: int) -> Any:
    """The same with FSDP1: a scaler that sees its own shard, and ShardedGradScaler."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    def seen(scaler: Any) -> list[Any]:
        model = FSDP(Net(), device_id=torch.device("cpu"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler.scale(model(rows(rank)).sum()).backward()
        (weight,) = model.parameters()
        before = weight.detach().clone()
        if rank == 0:
            weight.grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        return [scaler.get_scale(), not before.equal(weight)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "plain": seen(torch.amp.GradScaler("cpu", init_scale=1024.0)),
            "sharded": seen(ShardedGradScaler("cpu", init_scale=1024.0)),
        }


def not_broadcast(rank: int) -> Any:
    """fully_shard of a model that each rank has drawn: rows of both."""
    torch.manual_seed(rank)
    net = nn.Linear(1, 2, bias=False)
    own = net.weight.flatten().tolist()
    mixed = fully_shard(net).weight.full_tensor().flatten().tolist()
    return {"own": own, "mixed": mixed}
