"""States and files of shards: what is in them, and who may load them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.facts_of_torch.pairs import waiting, while_others_wait
from tests.facts_of_torch.ranks.nets import Net, left, sharded, step
from tests.facts_of_torch.ranks.small import Sum, said


def saved_shards(rank: int) -> Any:
    """What torch.save writes of state_dict(), and what a plain model makes of it."""
    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer, rank)
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
    plain = Net()
    error = said(lambda: plain.load_state_dict(weights, **options))
    weight = plain.layer.weight
    kept = [*weight.shape] if not isinstance(weight, DTensor) else "DTensor"
    return [error, kept, said(lambda: plain(torch.ones(2, 1)))]


def whole_states(rank: int) -> Any:
    """get_model_state_dict on all ranks: with cpu_offload rank 0's alone."""
    full = StateDictOptions(full_state_dict=True)
    on_cpu = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return [
        [*get_model_state_dict(sharded(), options=full)],
        [*get_model_state_dict(sharded(), options=on_cpu)],
    ]


def loaded_from_rank_0(rank: int) -> Any:
    """The two single setters, {} on rank 1."""
    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    plain = Net()
    other = torch.optim.AdamW(plain.parameters(), lr=0.1)
    step(plain, other, rank)
    named = {"layer.weight": plain.layer.weight.detach().clone()}
    state = other.state_dict()
    state = {"state": {"layer.weight": state["state"][0]}, "param_groups": state["param_groups"]}
    state["param_groups"][0]["params"] = ["layer.weight"]
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, named if rank == 0 else {}, options=options)
    set_optimizer_state_dict(model, optimizer, state if rank == 0 else {}, options=options)
    alone = StateDictOptions(broadcast_from_rank0=True)
    return [left(model), said(lambda: set_model_state_dict(model, named, options=alone))]


@waiting(2)
def loaded_at_once(rank: int) -> Any:
    """set_state_dict with {} for the model and the optimizer of rank 1."""
    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    weights, moments = {}, {}
    if rank == 0:
        plain = Net()
        other = torch.optim.AdamW(plain.parameters(), lr=0.1)
        step(plain, other, rank)
        weights = plain.state_dict()
        state = other.state_dict()
        state["param_groups"][0]["params"] = ["layer.weight"]
        moments = {**state, "state": {"layer.weight": state["state"][0]}}
    set_state_dict(
        model, optimizer, model_state_dict=weights, optim_state_dict=moments, options=options
    )
    while_others_wait()


def zero_states(rank: int) -> Any:
    """ZeroRedundancyOptimizer: whose moments a rank has, and what state_dict() says."""
    model = DDP(Sum("a", "b"))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    step(model, optimizer, rank)
    own = len(optimizer.optim.state)
    before = said(optimizer.state_dict)
    optimizer.consolidate_state_dict(to=0)
    after = said(optimizer.state_dict)
    return [own, before, after, len(optimizer.state_dict()["state"]) if rank == 0 else 0]


def loaded_by_one_rank(rank: int) -> Any:
    """Rank 0 alone loads 5s: before DDP, after DDP, before fully_shard."""
    state = {"layer.weight": torch.full((8, 1), 5.0)}

    def net() -> Net:
        made = Net()
        if rank == 0:
            made.load_state_dict(state)
        return made

    before = DDP(net())
    after = DDP(Net())
    if rank == 0:
        after.module.load_state_dict(state)
    step(after, torch.optim.SGD(after.parameters(), lr=1.0), rank)
    shard = fully_shard(net())
    return {
        "before DDP": before.module.layer.weight.unique().tolist(),
        "after DDP": after.module.layer.weight.unique().tolist(),
        "before fully_shard": shard.layer.weight.full_tensor().flatten().tolist(),
    }
