"""What fully_shard does with weights, gradients, states and files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.facts_of_torch.pairs import waiting, while_others_wait
from tests.facts_of_torch.ranks.small import Sum, gradients, said


class _Net(nn.Module):
    """y = sum of w x over eight rows of weights, a half on each rank; all w are 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 8, bias=False)
        nn.init.ones_(self.layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum()


class _Blocks(nn.Module):
    """Two blocks, each sharded, and a head that is the root's own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.head = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def _in_blocks() -> _Blocks:
    model = _Blocks()
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def _sharded() -> _Net:
    return fully_shard(_Net())


def _rows(rank: int) -> torch.Tensor:
    """Two rows, with a sum of 1 on rank 0 and of 2 on rank 1."""
    return torch.full((2, 1), (rank + 1) / 2)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    optimizer.zero_grad()
    model(_rows(rank)).sum().backward()
    optimizer.step()


def shards(rank: int) -> Any:
    """What the object is, and where its weights are."""
    net = _Net()
    model = fully_shard(net)
    wrapped = {"same object": model is net, "class": type(model).__name__}
    return {
        **wrapped,
        "own rows": model.layer.weight.to_local().shape[0],
        "user's": isinstance(model, _Net),
    }


def averaged(rank: int) -> Any:
    model = _sharded()
    model(_rows(rank)).sum().backward()
    return gradients(model)


def other_methods(rank: int) -> Any:
    """A method, .forward() and a layer: before any forward, and after one of the model."""

    def seen(call: Any) -> list[Any]:
        model = _sharded()
        first = said(lambda: call(model).sum().backward())
        model = _sharded()
        model(_rows(rank)).sum().backward()
        model.zero_grad()
        model(_rows(rank))
        after = said(lambda: call(model).sum().backward())
        return [first, after or gradients(model)]

    registered = _sharded()
    register_fsdp_forward_method(registered, "loss")
    registered.loss(_rows(rank)).backward()
    return {
        "method": seen(lambda model: model.loss(_rows(rank))),
        "forward": seen(lambda model: model.forward(_rows(rank))),
        "layer": seen(lambda model: model.layer(_rows(rank))),
        "registered": gradients(registered),
    }


def late_method(rank: int) -> Any:
    """A method right after a whole step of the model."""
    model = _sharded()
    model(_rows(rank)).sum().backward()
    model.zero_grad()
    error = said(lambda: model.loss(_rows(rank)).backward())
    return error or gradients(model)


def _left(model: nn.Module) -> list[float]:
    with torch.no_grad():
        return [round(w.full_tensor().mean().item(), 4) for w in model.parameters()]


def optimizer_before(rank: int) -> Any:
    """An optimizer of the weights as they were before they were sharded."""
    model = _Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(_rows(rank)).sum().backward()
        optimizer.step()
    late = _sharded()
    _step(late, torch.optim.SGD(late.parameters(), lr=0.1), rank)
    return {"before": _left(model), "gradients": gradients(model), "after": _left(late)}


def optimizer_before_fsdp1(rank: int) -> Any:
    """FSDP1 on the CPU, with and without use_orig_params: what is left of the sum of weights."""

    def seen(**options: bool) -> float:
        net = _Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        model = FSDP(net, device_id=torch.device("cpu"), **options)
        _step(model, optimizer, rank)
        with FSDP.summon_full_params(model):
            return round(net.layer.weight.mean().item(), 4)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [seen(), seen(use_orig_params=True)]


def saved_shards(rank: int) -> Any:
    """What torch.save writes of state_dict(), and what a plain model makes of it."""
    model = _sharded()
    optimizer = torch.optim.AdamW(model.parameters())
    _step(model, optimizer, rank)
    torch.save([model.state_dict(), optimizer.state_dict()], f"{rank}.pt")
    weights, moments = torch.load(f"{rank}.pt", weights_only=False)
    weight, moment = weights["layer.weight"], moments["state"][0]["exp_avg"]
    return {
        "kinds": [isinstance(one, DTensor) for one in (weight, moment)],
        "rows": [weight.to_local().shape[0], weight.shape[0]],
        "bytes": Path(f"{rank}.pt").stat().st_size,
        "loaded": _used(weights),
        "assigned": _used(weights, assign=True),
    }


def _used(weights: dict[str, Any], **options: bool) -> list[Any]:
    """How a plain model loads it, what it has then, and how it computes."""
    plain = _Net()
    error = said(lambda: plain.load_state_dict(weights, **options))
    weight = plain.layer.weight
    kept = [*weight.shape] if not isinstance(weight, DTensor) else "DTensor"
    return [error, kept, said(lambda: plain(torch.ones(2, 1)))]


def whole_states(rank: int) -> Any:
    """get_model_state_dict on all ranks: with cpu_offload rank 0's alone."""
    full = StateDictOptions(full_state_dict=True)
    on_cpu = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return [
        [*get_model_state_dict(_sharded(), options=full)],
        [*get_model_state_dict(_sharded(), options=on_cpu)],
    ]


def loaded_from_rank_0(rank: int) -> Any:
    """The two single setters, {} on rank 1."""
    model = _sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    plain = _Net()
    other = torch.optim.AdamW(plain.parameters(), lr=0.1)
    _step(plain, other, rank)
    named = {"layer.weight": plain.layer.weight.detach().clone()}
    state = other.state_dict()
    state = {"state": {"layer.weight": state["state"][0]}, "param_groups": state["param_groups"]}
    state["param_groups"][0]["params"] = ["layer.weight"]
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, named if rank == 0 else {}, options=options)
    set_optimizer_state_dict(model, optimizer, state if rank == 0 else {}, options=options)
    alone = StateDictOptions(broadcast_from_rank0=True)
    return [_left(model), said(lambda: set_model_state_dict(model, named, options=alone))]


@waiting(2)
def loaded_at_once(rank: int) -> Any:
    """set_state_dict with {} for the model and the optimizer of rank 1."""
    model = _sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    weights, moments = {}, {}
    if rank == 0:
        plain = _Net()
        other = torch.optim.AdamW(plain.parameters(), lr=0.1)
        _step(plain, other, rank)
        weights = plain.state_dict()
        state = other.state_dict()
        state["param_groups"][0]["params"] = ["layer.weight"]
        moments = {**state, "state": {"layer.weight": state["state"][0]}}
    set_state_dict(
        model, optimizer, model_state_dict=weights, optim_state_dict=moments, options=options
    )
    while_others_wait()


def parts_of_numbers(rank: int) -> Any:
    """Reductions of a weight whose rows are 1 … 8: of both ranks 36, 4.5, 8, 14.2829."""
    model = _sharded()
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
    model(_rows(rank)).sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return {"item": item, "whole": whole, "clipped": round(norm.item(), 4)}


def _alone(rank: int, action: Any) -> None:
    if rank:
        while_others_wait()
    else:
        action()


@waiting(2)
def full_tensor_on_one_rank(rank: int) -> Any:
    model = _sharded()
    _alone(rank, lambda: model.layer.weight.full_tensor())


@waiting(2)
def model_state_on_one_rank(rank: int) -> Any:
    model = _sharded()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    _alone(rank, lambda: get_model_state_dict(model, options=options))


@waiting(2)
def checkpoint_on_one_rank(rank: int) -> Any:
    model = _sharded()
    _alone(rank, lambda: dcp.save(model.state_dict(), checkpoint_id="saved"))


@waiting(2)
def clipping_on_one_rank(rank: int) -> Any:
    model = _sharded()
    model(_rows(rank)).sum().backward()
    _alone(rank, lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))


@waiting(2)
def consolidation_on_one_rank(rank: int) -> Any:
    model = DDP(Sum("a", "b"))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    _step(model, optimizer, rank)
    _alone(rank, optimizer.consolidate_state_dict)


@waiting(2)
def state_of_fsdp1_on_one_rank(rank: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FSDP(_Net(), device_id=torch.device("cpu"))
        _alone(rank, model.state_dict)


def shown_on_one_rank(rank: int) -> Any:
    """repr() and state_dict() of one rank, then a sum of both."""
    model = _sharded()
    if rank == 0:
        text = repr(model) + repr(model.layer.weight) + str([*model.state_dict()])
        assert text
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def zero_states(rank: int) -> Any:
    """ZeroRedundancyOptimizer: whose moments a rank has, and what state_dict() says."""
    model = DDP(Sum("a", "b"))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    _step(model, optimizer, rank)
    own = len(optimizer.optim.state)
    before = said(optimizer.state_dict)
    optimizer.consolidate_state_dict(to=0)
    after = said(optimizer.state_dict)
    return [own, before, after, len(optimizer.state_dict()["state"]) if rank == 0 else 0]


def _evaluated(rank: int, model: nn.Module, x: torch.Tensor) -> float:
    """Under no_grad, three forwards on rank 0 and two on rank 1."""
    with torch.no_grad():
        for _ in range(3 - rank):
            model(x)
    if rank:
        while_others_wait()
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


@waiting(2)
def uneven_evaluation(rank: int) -> Any:
    return _evaluated(rank, _in_blocks(), torch.ones(2, 4))


@waiting(10)
def uneven_evaluation_of_a_root(rank: int) -> Any:
    """The root has no blocks beside it, and keeps its weights after a forward."""
    return _evaluated(rank, _sharded(), torch.ones(2, 1))


def stale_weights(rank: int) -> Any:
    """A forward between backward and step, and the loss of the next one; all w end at .85."""

    def seen(between: bool, **options: bool) -> list[float]:
        model = fully_shard(_Net(), **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(_rows(rank)).sum().backward()
        if between:
            with torch.no_grad():
                model(_rows(rank))
        optimizer.step()
        used = round(model(torch.ones(2, 1)).mean().item(), 4)
        model.reshard()
        return [used, *_left(model)]

    return {
        "between": seen(True),
        "not between": seen(False),
        "reshard": seen(True, reshard_after_forward=True),
    }


def never_reduced(rank: int) -> Any:
    """set_requires_gradient_sync(False), for two steps; then taken back."""
    model = _sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.set_requires_gradient_sync(False)
    for _ in range(2):
        model(_rows(rank)).sum().backward()
        optimizer.step()
    quiet = [gradients(model), _left(model)]
    model.set_requires_gradient_sync(True)
    model(_rows(rank)).sum().backward()
    return [*quiet, gradients(model), hasattr(model, "no_sync")]


def loaded_by_one_rank(rank: int) -> Any:
    """Rank 0 alone loads 5s: before DDP, after DDP, before fully_shard."""
    state = {"layer.weight": torch.full((8, 1), 5.0)}

    def net() -> _Net:
        made = _Net()
        if rank == 0:
            made.load_state_dict(state)
        return made

    before = DDP(net())
    after = DDP(_Net())
    if rank == 0:
        after.module.load_state_dict(state)
    _step(after, torch.optim.SGD(after.parameters(), lr=1.0), rank)
    shard = fully_shard(net())
    return {
        "before DDP": before.module.layer.weight.unique().tolist(),
        "after DDP": after.module.layer.weight.unique().tolist(),
        "before fully_shard": shard.layer.weight.full_tensor().flatten().tolist(),
    }


def scaled(rank: int) -> Any:
    """An infinite gradient in rank 0's shard alone, with torch.amp.GradScaler."""
    model = _sharded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(model(_rows(rank)).sum()).backward()
    if rank == 0:
        model.layer.weight.grad.to_local()[0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    return [scaler.get_scale(), *_left(model)]


def scaled_by_fsdp1(rank: int) -> Any:
    """The same with FSDP1: a scaler that sees its own shard, and ShardedGradScaler."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    def seen(scaler: Any) -> list[Any]:
        model = FSDP(_Net(), device_id=torch.device("cpu"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler.scale(model(_rows(rank)).sum()).backward()
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
