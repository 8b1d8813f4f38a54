"""Groups of some ranks, messages between two, and what is asked before there is a group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.facts_of_torch.pairs import groupless, waiting, while_others_wait
from tests.facts_of_torch.ranks.small import said


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
    counted = said(lambda: dist.new_group([0, 1]))
    dist.barrier()
    return [local, counted]


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
