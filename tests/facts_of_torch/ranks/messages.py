"""Messages, files and numbers that one rank has, and the other looks for."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.facts_of_torch.pairs import groupless, waiting, while_others_wait
from tests.facts_of_torch.ranks.small import said

_ORDER = "print(*{f'name {n}' for n in range(20)}, sep=',')"


@waiting(4)
def other_tags(rank: int) -> Any:
    """Sent with tag 1, waited for with tag 2."""
    value = torch.zeros(10)
    if rank == 0:
        dist.send(value, dst=1, tag=1)
    else:
        dist.recv(value, src=0, tag=2)


@waiting(4)
def one_message_more(rank: int) -> Any:
    """Two are sent, one is received."""
    value = torch.zeros(10)
    if rank == 0:
        dist.send(value, dst=1)
        return said(lambda: dist.send(value, dst=1))
    dist.recv(value, src=0)
    while_others_wait()
    return ""


@groupless
def another_key(rank: int) -> Any:
    """A key is set, and another one waited for."""
    store = dist.FileStore("keys", 2)
    if rank == 0:
        store.set("rows/1", "ready")
        while_others_wait()
        return ""
    return said(lambda: store.wait(["rows/0"], timedelta(seconds=2)))


def collected(rank: int) -> Any:
    """What gather_object leaves where nothing is collected."""
    parts = [None] * 2 if rank == 0 else None
    dist.gather_object(rank + 1, parts, dst=0)
    return said(lambda: sum(parts))


def own_order(rank: int) -> Any:
    """Sums in the order of a dict that each rank has filled by its own samples: a of 1 and 10."""
    counts = {"a": 1.0, "b": 2.0} if rank == 0 else {"b": 20.0, "a": 10.0}
    totals = {name: torch.tensor(count) for name, count in counts.items()}
    for total in totals.values():
        dist.all_reduce(total)
    return totals["a"].item()


@groupless
def order_of_a_set(rank: int) -> Any:
    """In which order a new process goes through a set of texts."""
    command = [sys.executable, "-c", _ORDER]
    return subprocess.run(command, capture_output=True, text=True, env={}).stdout


def removed_when_read(rank: int) -> Any:
    """Rank 0 removes a file when it has read it; rank 1 is half a second behind."""
    file = Path("start.pt")
    if rank == 0:
        torch.save(torch.ones(1), file)
    dist.barrier()
    time.sleep(rank / 2)
    error = said(lambda: torch.load(file))
    if rank == 0:
        file.unlink()
    return error
