"""What DistributedDataParallel notes of a model when it is made, and what it never sees."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.facts_of_torch.ranks.small import Sum, batch, gradients, reductions, said


def _iterations(model: nn.Module, rank: int, *names: str) -> list[Any]:
    """Gradients of two iterations, or what the second raises."""
    seen: list[Any] = []
    for _ in range(2):
        model.zero_grad()
        error = said(lambda: model(batch(rank), *names).sum().backward())
        seen.append(error.partition(" in the prior")[0] if error else gradients(model))
    return seen


def averaged(rank: int) -> Any:
    return {
        "bare": _iterations(Sum("a"), rank),
        "wrapped": _iterations(DDP(Sum("a")), rank),
    }


def unused(rank: int) -> Any:
    model = DDP(Sum("a", "b"))
    return _iterations(model, rank, "a")


def unused_anywhere(rank: int) -> Any:
    """In the first iteration there is one bucket, however small it is to be."""
    seen = {}
    for used in ("ab", "bc", "ac"):
        seen[used] = _iterations(DDP(Sum("a", "b", "c"), bucket_cap_mb=1e-6), rank, *used)
    return seen


def replaced(rank: int) -> Any:
    model = DDP(Sum("a", "b"))
    model.module.layers["b"] = Sum("b").layers["b"]
    return _iterations(model, rank)


def added(rank: int) -> Any:
    model = DDP(Sum("a"))
    model.module.layers["b"] = Sum("b").layers["b"]
    return _iterations(model, rank)


def unfrozen(rank: int) -> Any:
    inner = Sum("a", "b")
    inner.layers["b"].requires_grad_(False)
    model = DDP(inner)
    inner.layers["b"].requires_grad_(True)
    return _iterations(model, rank)


def frozen(rank: int) -> Any:
    model = DDP(Sum("a", "b"))
    model.module.layers["b"].requires_grad_(False)
    return _iterations(model, rank)


def moved(rank: int) -> Any:
    def after(move: Callable[[nn.Module], Any]) -> list[Any]:
        model = DDP(Sum("a"))
        before = model.module.layers["a"].weight.data_ptr()
        move(model)
        kept = model.module.layers["a"].weight.data_ptr() == before
        dtype = next(model.parameters()).dtype
        model(batch(rank).to(dtype)).sum().backward()
        return [kept, *gradients(model)]

    return {
        "double": after(lambda model: model.double()),
        "there and back": after(lambda model: model.double().float()),
        "to the same": after(lambda model: model.to("cpu")),
    }


def nested(rank: int) -> Any:
    twice, once = DDP(Sum("a")), DDP(Sum("a"))
    outer = DDP(twice)
    counts = [reductions(model) for model in (outer, twice, once)]
    outer(batch(rank)).sum().backward()
    once(batch(rank)).sum().backward()
    parallel = nn.DataParallel(once)
    parallel(batch(rank)).sum().backward()
    shard = nn.Linear(2, 2)
    fully_shard(shard)
    return {
        "DDP twice": [gradients(outer), *map(len, counts)],
        "DataParallel": [gradients(parallel)],
        "DDP of shards": said(lambda: DDP(shard)),
    }


def sharded_wrapper(rank: int) -> Any:
    model = DDP(Sum("a", "b"))
    count = reductions(model)
    fully_shard(model)
    seen = [_iterations(model, rank), [*count]]
    return {
        "gradients": seen,
        "rows": [weight.to_local().shape[0] for weight in model.parameters()],
        "keys": [*model.state_dict()],
    }


def attributes(rank: int) -> Any:
    inner = Sum("a")
    inner.loss = lambda x: x  # type: ignore[assignment]
    model = DDP(inner)
    model.rate = 3
    return {
        "attribute": said(lambda: model.layers),
        "method": said(lambda: model.loss(0)),
        "children": [type(child).__name__ for child in model.children()],
        "names": [name for name, _ in model.named_parameters()],
        "assigned": hasattr(inner, "rate"),
    }


def sync_batch_norm(rank: int) -> Any:
    inner = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model = DDP(inner)
    before = [*map(id, model.module.parameters())], [*map(id, model.module.buffers())]
    nn.SyncBatchNorm.convert_sync_batchnorm(model)
    after = [*map(id, model.module.parameters())], [*map(id, model.module.buffers())]
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(2)))
    return {
        "in place": [model.module is inner, type(inner[1]).__name__],
        "the same tensors": [one == other for one, other in zip(before, after, strict=True)],
        "noted": [
            [*map(id, model._module_parameters)] == after[0],
            {*map(id, model.modules_buffers)} == {*after[1]},
        ],
        "CPU": said(lambda: DDP(converted)),
        "CPU later": said(lambda: model(torch.rand(2, 2))),
    }


def beside(rank: int) -> Any:
    torch.manual_seed(rank)
    model, head = DDP(Sum("a")), nn.Linear(1, 1, bias=False)
    drawn = head.weight.item()
    nn.init.ones_(head.weight)
    loose = nn.Parameter(torch.ones(()))
    (head(model(batch(rank))) * loose).sum().backward()
    return {
        "inside": gradients(model),
        "head": gradients(head),
        "loose": loose.grad.item(),
        "drawn": drawn,
    }


def devices(rank: int) -> Any:
    return {
        "number": said(lambda: DDP(Sum("a"), device_ids=[0])),
        "cpu": said(lambda: DDP(Sum("a"), device_ids=[torch.device("cpu")])),
        "none": said(lambda: DDP(Sum("a"), device_ids=None)),
        "empty": said(lambda: DDP(Sum("a"), device_ids=[])),
    }


def drawn_again(rank: int) -> Any:
    torch.manual_seed(rank)
    inner = nn.Linear(1, 1, bias=False)
    own = inner.weight.item()
    model = DDP(inner)
    at_the_wrap = inner.weight.item()
    inner.reset_parameters()
    again = inner.weight.item()
    model(batch(rank)).sum().backward()
    with torch.no_grad():
        inner.weight -= inner.weight.grad
    return {"own": own, "sent": at_the_wrap, "again": again, "stepped": inner.weight.item()}


class _Late(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Sum("a")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.rand(1, 1))
        return self.first(x) + self.scale * x


def made_late(rank: int) -> Any:
    torch.manual_seed(rank)
    model = DDP(_Late())
    model(batch(rank)).sum().backward()
    return {
        "values": model.module.scale.item(),
        "gradients": gradients(model),
        "lazy": said(lambda: DDP(nn.LazyLinear(1))),
    }


def states(rank: int) -> Any:
    inner = Sum("a")
    model = DDP(inner)
    nn.init.zeros_(inner.layers["a"].weight)
    state = model.state_dict()
    plain = Sum("a")
    loose = plain.load_state_dict(state, strict=False)
    return {
        "keys": [*state],
        "DataParallel": [*nn.DataParallel(Sum("a")).state_dict()],
        "plain": said(lambda: Sum("a").load_state_dict(state)),
        "not strict": [plain.layers["a"].weight.item(), loose.unexpected_keys],
        "into the wrapper": said(lambda: model.load_state_dict(plain.state_dict())),
    }


def pickled(rank: int) -> Any:
    data = pickle.dumps(DDP(Sum("a")))
    inside = type(pickle.loads(data)).__name__
    torch.distributed.destroy_process_group()
    return [inside, said(lambda: pickle.loads(data))]


def other_widths(rank: int) -> Any:
    return said(lambda: DDP(nn.Linear(2, 4 if rank == 0 else 3)))
