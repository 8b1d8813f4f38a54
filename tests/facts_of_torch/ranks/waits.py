"""What asynchronous calls, other groups and metrics wait for, and what they do not wait for."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from tests.facts_of_torch.pairs import groupless, waiting, while_others_wait
from tests.facts_of_torch.ranks.small import said


def last_handle_alone(rank: int) -> Any:
    """Of a long sum and a short one the second alone is waited for: 3 at the end of the long."""
    long, short = torch.full((60_000_000,), rank + 1.0), torch.full((1,), rank + 1.0)
    works = [dist.all_reduce(long, async_op=True), dist.all_reduce(short, async_op=True)]
    works[1].wait()
    seen = [works[0].is_completed(), short.item(), long[-1].item()]
    works[0].wait()
    return [*seen, long[-1].item()]


@waiting(4)
def each_in_another_group(rank: int) -> Any:
    """Rank 0 in one group of both, rank 1 in another."""
    groups = [dist.new_group(), dist.new_group()]
    dist.all_reduce(torch.ones(1), group=groups[rank])
    while_others_wait()


def gathered_into_integers(rank: int) -> Any:
    """all_gather() of floats into a list of integers."""
    parts = [torch.zeros(2, dtype=torch.int64) for _ in range(2)]
    return [said(lambda: dist.all_gather(parts, torch.ones(2))), [p.tolist() for p in parts]]


def list_of_three(rank: int) -> Any:
    """all_gather() among two into a list of three."""
    parts = [torch.zeros(2) for _ in range(3)]
    return said(lambda: dist.all_gather(parts, torch.ones(2), group=dist.new_group([0, 1])))


@waiting(4)
def objects_sent_first(rank: int) -> Any:
    """Both send a list of objects, then receive one."""
    dist.send_object_list([rank], dst=1 - rank)
    dist.recv_object_list([None], src=1 - rank)
    while_others_wait()


def root_without_objects(rank: int) -> Any:
    """The root has None, and the other what it means to send."""
    objects = [None if rank == 0 else "here"]
    dist.broadcast_object_list(objects, src=0)
    return objects


def clipped_shards(rank: int) -> Any:
    """torch.nn.utils and the wrapper clip a sharded weight, of gradients 3 and 4: norms."""

    def norms(wrapped: bool) -> list[float]:
        torch.manual_seed(0)
        model = FSDP(nn.Linear(2, 1, bias=False), device_id=torch.device("cpu"))
        (model(torch.tensor([[3.0, 4.0]])).sum()).backward()
        if wrapped:
            norm = model.clip_grad_norm_(1.0)
        else:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        (weight,) = model.parameters()
        return [norm.item(), *weight.grad.flatten().tolist()]

    return {"torch": norms(False), "wrapper": norms(True)}


@waiting(4)
def metric_of_one_rank(rank: int) -> Any:
    """compute() of torchmetrics on rank 0 alone."""
    from torchmetrics import MeanMetric

    metric = MeanMetric()
    metric.update(float(rank))
    if rank == 0:
        metric.compute()
    while_others_wait()


def metrics_that_do_not_wait(rank: int) -> Any:
    """Told not to sync, and asked again on rank 0: what each gives."""
    from torchmetrics import MeanMetric

    own, all_ranks = MeanMetric(sync_on_compute=False), MeanMetric()
    for metric in (own, all_ranks):
        metric.update(float(rank))
    alone = own.compute().item() if rank == 0 else None
    both = all_ranks.compute().item()
    again = all_ranks.compute().item() if rank == 0 else None
    dist.barrier()
    return [alone, both, again]


@groupless
def metric_before_the_group(rank: int) -> Any:
    from torchmetrics import MeanMetric

    metric = MeanMetric()
    metric.update(float(rank))
    return metric.compute().item() if rank == 0 else None


@groupless
def reduced_by_fabric(rank: int) -> Any:
    """The tensor that was given to Fabric.all_reduce(), and what it gave."""
    from lightning.fabric import Fabric
    from lightning.fabric.strategies import DDPStrategy

    fabric = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy())
    fabric.launch()
    given = torch.tensor([rank + 1.0])
    made = fabric.all_reduce(given, reduce_op="sum")
    return [given.item(), made.item()]
