"""What torch.distributed's collectives return, and what they do where ranks give other things."""

from __future__ import annotations

import time
import warnings
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable

from tests.facts_of_torch.pairs import groupless, waiting, while_others_wait
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


@groupless
def without_a_group(rank: int) -> Any:
    """What is asked before init_process_group()."""
    return {
        "all_reduce": said(lambda: dist.all_reduce(torch.ones(1))),
        "barrier": said(dist.barrier),
        "get_rank": said(dist.get_rank),
        "get_world_size": said(dist.get_world_size),
    }


@groupless
def nccl_without_gpus(rank: int) -> Any:
    return said(lambda: dist.init_process_group("nccl"))


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


def group_of_one_rank(rank: int) -> Any:
    """new_group() of both, that rank 0 alone makes."""
    if rank == 0:
        return said(lambda: dist.new_group([0, 1], timeout=timedelta(seconds=2)))
    while_others_wait()
    return ""


def another_group_before(rank: int) -> Any:
    """Rank 0 alone makes a group of itself; then both make one of both."""
    if rank == 0:
        dist.new_group([0], timeout=timedelta(seconds=2))
    return said(lambda: dist.new_group([0, 1], timeout=timedelta(seconds=2)))


def group_of_members_alone(rank: int) -> Any:
    """use_local_synchronization: the only member makes it, and meets the other as before."""
    if rank == 0:
        own = dist.new_group([0], use_local_synchronization=True)
        dist.all_reduce(torch.ones(1), group=own)
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def group_after_that_of_members_alone(rank: int) -> Any:
    """The next one of both is named by how many groups a rank knows."""
    if rank == 0:
        dist.new_group([0], use_local_synchronization=True)
    limit = timedelta(seconds=2)
    local = said(lambda: dist.new_group([0, 1], timeout=limit, use_local_synchronization=True))
    return [local, said(lambda: dist.new_group([0, 1], timeout=limit))]


@waiting(2)
def both_receive_first(rank: int) -> Any:
    dist.recv(torch.zeros(1), src=1 - rank)
    dist.send(torch.ones(1), dst=1 - rank)


def in_good_order(rank: int) -> Any:
    """By parity, with isend(), with irecv(), and as a batch."""
    other, seen = 1 - rank, []
    value = torch.zeros(1)
    calls = [dist.recv, dist.send] if rank else [dist.send, dist.recv]
    for call in calls:
        call(torch.full((1,), rank + 1.0) if call is dist.send else value, other)
    seen.append(value.item())
    sent, value = dist.isend(torch.full((1,), rank + 1.0), other), torch.zeros(1)
    dist.recv(value, other)
    sent.wait()
    seen.append(value.item())
    value = torch.zeros(1)
    came = dist.irecv(value, other)
    dist.send(torch.full((1,), rank + 1.0), other)
    came.wait()
    seen.append(value.item())
    value = torch.zeros(1)
    pair = [
        dist.P2POp(dist.isend, torch.full((1,), rank + 1.0), other),
        dist.P2POp(dist.irecv, value, other),
    ]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return [*seen, value.item()]


@waiting(4)
def a_float_meets_an_integer(rank: int) -> Any:
    value = torch.tensor(1.0) if rank == 0 else torch.tensor(1, dtype=torch.int32)
    dist.broadcast(value, src=0)
    return value.item()


@waiting(4)
def a_double_meets_a_float(rank: int) -> Any:
    value = torch.ones(2, dtype=torch.float64 if rank == 0 else torch.float32)
    dist.all_reduce(value)
    return value.tolist()


@waiting(4)
def lengths_differ(rank: int) -> Any:
    value = torch.ones(2 if rank == 0 else 3)
    dist.all_reduce(value)
    return value.tolist()


@waiting(4)
def gathered_lengths_differ(rank: int) -> Any:
    own = torch.ones(2 if rank == 0 else 4)
    rows = [torch.zeros_like(own) for _ in range(2)]
    dist.all_gather(rows, own)
    return [row.shape[0] for row in rows]


def sent_lengths_differ(rank: int) -> Any:
    """Rank 0 sends two 7s, rank 1 waits for three."""
    value = torch.full((2 + rank,), 7.0 - rank)
    dist.broadcast(value, src=0)
    return value.tolist()


def lists_of_objects(rank: int) -> Any:
    """Written in the call, and under a name."""
    word = "rank 0's" if rank == 0 else None
    dist.broadcast_object_list([word], src=0)
    named = [word]
    dist.broadcast_object_list(named, src=0)
    return [word, *named]


@waiting(4)
def lists_of_other_lengths(rank: int) -> Any:
    dist.broadcast_object_list([1, 2] if rank == 0 else [None], src=0)


@waiting(4)
def longer_lists_elsewhere(rank: int) -> Any:
    dist.broadcast_object_list([1] if rank == 0 else [None, None], src=0)


def aliased(rank: int) -> Any:
    """n times the same tensor, and n tensors."""
    own, same = torch.tensor([rank + 1.0]), [torch.zeros(1)] * 2
    dist.all_gather(same, own)
    each = [torch.zeros(1) for _ in range(2)]
    dist.all_gather(each, own)
    return [torch.cat(same).tolist(), torch.cat(each).tolist()]


def not_awaited(rank: int) -> Any:
    """Rank 1 comes a second later."""
    value = torch.tensor([rank + 1.0])
    if rank:
        time.sleep(1)
    work = dist.all_reduce(value, async_op=True)
    before = value.item()
    work.wait()
    return [before, value.item()]


@waiting(2)
def each_sends(rank: int) -> Any:
    dist.broadcast(torch.ones(1), src=rank)
    while_others_wait()


@waiting(2)
def each_sends_to_itself(rank: int) -> Any:
    dist.reduce(torch.ones(1), dst=rank)
    while_others_wait()


def other_operations(rank: int) -> Any:
    """MAX on rank 0, SUM on rank 1, of 1,000 entries: 1 and 2 are 2 or 3."""
    value = torch.full((1000,), rank + 1.0)
    dist.all_reduce(value, op=dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM)
    return [value.eq(2).sum().item(), value.eq(3).sum().item()]
