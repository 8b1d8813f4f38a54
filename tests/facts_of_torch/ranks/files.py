"""What two processes do to one path: files, folders, and what writes them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

from tests.facts_of_torch.ranks.small import said


def one_text(rank: int) -> Any:
    """Both open the same path to write, and write a line of their own length each."""
    path = Path("../log.txt") if False else Path("log.txt")
    with path.open("w") as file:
        dist.barrier()
        for number in range(3):
            file.write(f"{number} " + "ab"[rank] * (4 + rank) + "\n")
            file.flush()
            dist.barrier()
    dist.barrier()
    return path.read_text().splitlines()


def one_appended(rank: int) -> Any:
    """Appended, each line comes twice."""
    with Path("log.csv").open("a") as file:
        for number in range(3):
            file.write(f"{number}\n")
            file.flush()
    dist.barrier()
    return sorted(Path("log.csv").read_text().split())


def one_folder(rank: int) -> Any:
    """Both ask, then both make it; then with exist_ok."""
    missing = not os.path.exists("out")
    dist.barrier()
    error = said(lambda: os.makedirs("out")) if missing else ""
    dist.barrier()
    return [missing, error.partition(":")[0], said(lambda: os.makedirs("out", exist_ok=True))]


def one_removal(rank: int) -> Any:
    if rank == 0:
        Path("old.pt").touch()
    dist.barrier()
    there = os.path.exists("old.pt")
    dist.barrier()
    return [there, said(lambda: os.remove("old.pt")).partition(":")[0]]


def one_checkpoint(rank: int) -> Any:
    """torch.save of other sizes to one path, until a file cannot be read; at most 300."""
    payload = {"weights": torch.rand(200_000 + 1_000_000 * rank)}
    for number in range(300):
        name = f"{number}.pt"
        dist.barrier()
        error = said(lambda name=name: torch.save(payload, name))
        dist.barrier()
        error = error or said(lambda name=name: torch.load(name))
        if error:
            break
    seen: list[Any] = [None, None]
    dist.all_gather_object(seen, error)
    return bool(error)


def equal_checkpoints(rank: int) -> Any:
    """(Files that cannot be read after both have written the same, whether a reader meets half a
    file while it is written again), of 100 each."""
    payload = {"weights": torch.ones(200_000)}
    bad = 0
    for number in range(100):
        dist.barrier()
        torch.save(payload, f"equal{number}.pt")
        dist.barrier()
        bad += bool(said(lambda number=number: torch.load(f"equal{number}.pt")))
    torch.save(payload, f"again{rank}.pt")
    dist.barrier()
    half = False
    for _ in range(100):
        if rank == 0:
            torch.save(payload, "again0.pt")
        else:
            half = half or bool(said(lambda: torch.load("again0.pt")))
    dist.barrier()
    return [bad, half]


def read_before_it_is_written(rank: int) -> Any:
    """Rank 0 takes its time to write; with a barrier and without."""
    if rank == 0:
        time.sleep(0.5)
        torch.save(1, "late.pt")
    early = said(lambda: torch.load("late.pt")) if rank else ""
    dist.barrier()
    return [early.partition(":")[0], said(lambda: torch.load("late.pt"))]


def event_files(rank: int) -> Any:
    """SummaryWriter on both."""
    writer = SummaryWriter("runs")
    writer.add_scalar("loss", 1.0)
    writer.close()
    dist.barrier()
    return len([*Path("runs").iterdir()])


def clocks(rank: int) -> Any:
    """The clock right behind the start of the group: to the microsecond, and to the minute."""
    own = time.time()
    seen: list[Any] = [None, None]
    dist.all_gather_object(seen, own)
    return {"apart": seen[0] != seen[1], "seconds": abs(seen[0] - seen[1])}
