"""Messages and outputs of another type or length, two groups in turn, variables in turn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.facts_of_torch.pairs import waiting, while_others_wait
from tests.facts_of_torch.ranks.small import said


def _received(rank: int, message: torch.Tensor, value: torch.Tensor) -> float:
    if rank == 0:
        dist.send(message, dst=1)
    else:
        dist.recv(value, src=0)
    return value.sum().item()


def integers_received_as_floats(rank: int) -> Any:
    return _received(rank, torch.ones(2, dtype=torch.int32), torch.zeros(2))


@waiting(4)
def a_shorter_buffer(rank: int) -> Any:
    return _received(rank, torch.ones(8), torch.zeros(4))


def a_longer_buffer(rank: int) -> Any:
    return _received(rank, torch.ones(4), torch.zeros(8))


@waiting(4)
def scattered_into_a_whole(rank: int) -> Any:
    value = torch.ones(4)
    return said(lambda: dist.reduce_scatter_tensor(torch.empty_like(value), value))


@waiting(4)
def gathered_into_a_part(rank: int) -> Any:
    value = torch.ones(4)
    return said(lambda: dist.all_gather_into_tensor(torch.empty_like(value), value))


@waiting(4)
def own_counts(rank: int) -> Any:
    """Both send three to rank 0, and expect three from it."""
    rows, counts = torch.ones(4), [3, 1]
    dist.all_to_all_single(torch.empty(4), rows, counts, counts)


@waiting(4)
def groups_in_turn(rank: int) -> Any:
    """Each rank waits in a group to which the other comes next."""
    made = [dist.new_group([0, 1], timeout=timedelta(seconds=4)) for _ in range(2)]
    for group in made if rank == 0 else made[::-1]:
        dist.all_reduce(torch.ones(1), group=group)
    while_others_wait()


def variables_in_turn(rank: int) -> Any:
    """Sent as mean and deviation, received the other way round."""
    mean, std = torch.tensor([3.0 - rank]), torch.tensor([5.0 - rank])
    if rank == 0:
        dist.send(mean, dst=1)
        dist.send(std, dst=1)
    else:
        dist.recv(std, src=0)
        dist.recv(mean, src=0)
    return [mean.item(), std.item()]
