"""What torch.distributed's collectives return, and what they do where ranks give other things."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable

from tests.facts_of_torch.pairs import waiting, while_others_wait
from tests.facts_of_torch.ranks.small import said


def returned(rank: int) -> Any:
    """What each gives back, and what a handle is."""
    one, rows = torch.ones(1), [torch.zeros(1), torch.zeros(1)]
    mine = None if rank else rows
    results = {
        "all_reduce": dist.all_reduce(one),
        "broadcast": dist.broadcast(one, src=0),
        "reduce": dist.reduce(one, dst=0),
        "all_gather": dist.all_gather(rows, one),
        "gather": dist.gather(one, mine, dst=0),
        "scatter": dist.scatter(one, mine, src=0),
        "barrier": dist.barrier(),
        "broadcast_object_list": dist.broadcast_object_list([1], src=0),
        "all_gather_object": dist.all_gather_object([None, None], 1),
        "gather_object": dist.gather_object(1, None if rank else [None, None], dst=0),
        "scatter_object_list": dist.scatter_object_list([None], [1, 2], src=0),
        "all_to_all": dist.all_to_all([torch.zeros(1) for _ in rows], rows),
        "all_gather_single": dist.all_gather_single(torch.zeros(2), one),
        "reduce_scatter_single": dist.reduce_scatter_single(torch.zeros(1), torch.ones(2)),
        "monitored_barrier": dist.monitored_barrier(),
    }
    handle = dist.all_reduce(one, async_op=True)
    handle.wait()
    return {
        "not None": [name for name, result in results.items() if result is not None],
        "handle": isinstance(handle, dist.Work),
    }


def functional_ones(rank: int) -> Any:
    """Those that do return tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [
            functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD),
            differentiable.all_reduce(torch.ones(1)),
        ]
    return [tensor.item() for tensor in tensors]


def cross_matched(rank: int) -> Any:
    """Rank 0 alone has a sum before both sum 11 and 10; rank 1 alone has one at the end."""
    value, other = torch.tensor(11.0 - rank), torch.tensor(100.0)
    if rank == 0:
        dist.all_reduce(other)
    dist.all_reduce(value)
    if rank == 1:
        dist.all_reduce(other)
    return value.item()


@waiting(2)
def unmatched(rank: int) -> Any:
    """Rank 0 alone, while rank 1 goes on with other things."""
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    else:
        while_others_wait()


def unmatched_at_the_end(rank: int) -> Any:
    """Rank 0 alone, while rank 1 ends."""
    if rank == 0:
        dist.all_reduce(torch.ones(1))


@waiting(2)
def barriers_in_one_arm(rank: int) -> Any:
    if rank == 0:
        dist.barrier()
    else:
        while_others_wait()


def rank_0_goes_first(rank: int) -> Any:
    """A pair of barriers, one in each arm, is one barrier of both."""
    if rank:
        dist.barrier()
    if rank == 0:
        dist.barrier()
    return True


def continued(rank: int) -> Any:
    """Rank 0 has 1, 2, 3 and leaves out the 2; rank 1 has 10 each time, and is done before."""
    sums = []
    for number in (1, 2, 3):
        if (rank, number) in {(0, 2), (1, 3)}:
            continue
        value = torch.tensor(float(number if rank == 0 else 10))
        dist.all_reduce(value)
        sums.append(value.item())
    return sums


@waiting(2)
def broken_off(rank: int) -> Any:
    """Rank 1 leaves the loop early and goes on with what is no collective."""
    for number in range(3):
        if rank == 1 and number == 1:
            break
        dist.all_reduce(torch.ones(1))
    if rank:
        while_others_wait()


def swallowed(rank: int) -> Any:
    """The same by an error of one batch, whose handler goes on."""
    sums: list[float] = []
    for number in (1, 2, 3):
        try:
            if (rank, number) in {(0, 2), (1, 3)}:
                raise ValueError("a bad row")
            value = torch.tensor(float(number if rank == 0 else 10))
            dist.all_reduce(value)
            sums.append(value.item())
        except ValueError:
            continue
    return sums


def stopped_by_the_clock(rank: int) -> Any:
    """Rank 1's time is up a step early: its metric, a 1, meets a step of rank 0, a 2."""
    for _ in range(2 - rank):
        dist.all_reduce(torch.tensor(2.0))
    metric = torch.tensor(1.0)
    error = said(lambda: dist.all_reduce(metric))
    return [metric.item(), error[:12]]


def reduced(rank: int) -> Any:
    """dist.reduce to rank 0 of 1 and 2."""
    value = torch.tensor([rank + 1.0])
    dist.reduce(value, dst=0)
    return value.item()


def mean_of_means(rank: int) -> Any:
    """Rank 0 has 3 of 4 right, rank 1 none of one."""
    right, count = (3.0, 4.0) if rank == 0 else (0.0, 1.0)
    numbers = torch.tensor([right / count, right, count])
    dist.all_reduce(numbers)
    mean, right, count = numbers.tolist()
    return [mean / 2, right / count]
