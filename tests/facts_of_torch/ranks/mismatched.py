"""Collectives to which ranks give other types, lengths, lists, senders or operations."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from tests.facts_of_torch.pairs import waiting, while_others_wait


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


@waiting(4)
def a_hook_on_one_rank(rank: int) -> Any:
    """Rank 0 sends half of each number."""
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    if rank == 0:
        model.register_comm_hook(None, fp16_compress_hook)
    for _ in range(3):
        model(torch.ones(2, 64)).sum().backward()
    while_others_wait()


@waiting(4)
def unused_on_one_rank(rank: int) -> Any:
    model = DistributedDataParallel(torch.nn.Linear(4, 1), find_unused_parameters=rank == 0)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
    while_others_wait()


def a_barrier_that_is_begun(rank: int) -> Any:
    """Rank 1 comes a second later: how long rank 0 is in it."""
    if rank:
        time.sleep(1)
    before = time.monotonic()
    begun = dist.barrier(async_op=True)
    passed = time.monotonic() - before
    begun.wait()
    return [passed, time.monotonic() - before]
