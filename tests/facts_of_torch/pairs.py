"""Run each function of a module as two ranks, and say what each rank saw of it.

torch is imported once; each fact then has two forked processes and a process group of its own, so
that one that hangs or aborts ends no other. The store is the launcher's, as under torchrun.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

LIMIT = 40.0  # seconds; what still runs then hangs
PATIENCE = 30.0  # of a process group, unless the fact is about waiting
LATE = "they did not meet: "
Fact = Callable[[int], Any]


def waiting(seconds: float) -> Callable[[Fact], Fact]:
    """A fact of ranks that wait for each other: the group's limit of time."""

    def mark(fact: Fact) -> Fact:
        fact.patience = seconds  # type: ignore[attr-defined]
        return fact

    return mark


def groupless(fact: Fact) -> Fact:
    """A fact before there is a process group, or of a library that makes it itself."""
    fact.patience = None  # type: ignore[attr-defined]
    return fact


def while_others_wait() -> None:
    """Stay alive until the other has given up: a peer that is gone is noticed, which is no hang."""
    other = Path(f"{1 - int(os.environ['RANK'])}.json")
    until = time.monotonic() + LIMIT / 2
    while not other.exists() and time.monotonic() < until:
        time.sleep(0.05)


def facts_of(module: Any) -> dict[str, Fact]:
    """Its own public functions, in order."""
    functions = inspect.getmembers(module, inspect.isfunction)
    own = [one for one in functions if one[1].__module__ == module.__name__]
    return {name: one for name, one in own if not name.startswith("_")}


def _rank(fact: Fact, rank: int, port: int, folder: Path) -> None:
    """What a forked process does. It never returns, and no destructor of torch runs at its end."""
    os.setsid()
    log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    environment = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2)
    environment |= dict(MASTER_ADDR="localhost", MASTER_PORT=port)
    environment |= dict(TORCHELASTIC_USE_AGENT_STORE=True, TORCHELASTIC_RUN_ID="facts")
    os.environ.update({key: str(value) for key, value in environment.items()})
    os.chdir(folder)
    where = LATE
    try:
        patience = getattr(fact, "patience", PATIENCE)
        if patience is not None:
            dist.init_process_group("gloo", timeout=timedelta(seconds=patience))
            dist.barrier()  # none may end while the other still connects
        where = ""
        seen = {"value": fact(rank)}
    except BaseException as error:
        traceback.print_exc()
        seen = {"error": f"{where}{type(error).__name__}: {error}"}
    sys.stdout.flush()
    sys.stderr.flush()
    (folder / f"{rank}.part").write_text(json.dumps(seen))
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    os._exit(0)


def _ended(pid: int, until: float) -> str:
    """How a process ended: "", "signal 6" or "hangs"."""
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


def measure(fact: Fact) -> list[dict[str, Any]]:
    """``value``, ``error`` or ``ended`` of each of two ranks, and what it wrote.

    On a machine with much to do the two may not meet in time: they try again.
    """
    for _ in range(3):
        seen = _measured(fact)
        if not any(rank.get("error", "").startswith(LATE) for rank in seen):
            break
    return seen


def _measured(fact: Fact) -> list[dict[str, Any]]:
    port = random.SystemRandom().randrange(20000, 32000)
    with tempfile.TemporaryDirectory(prefix="facts-") as name:
        folder = Path(name)
        children = []
        for rank in range(2):
            pid = os.fork()
            if not pid:
                _rank(fact, rank, port, folder)
            children.append(pid)
        store = dist.TCPStore("localhost", port, is_master=True, wait_for_workers=False)
        until = time.monotonic() + LIMIT
        ends = [_ended(pid, until) for pid in children]
        del store
        return [_seen(folder, rank, ended) for rank, ended in enumerate(ends)]


def _seen(folder: Path, rank: int, ended: str) -> dict[str, Any]:
    file = folder / f"{rank}.json"
    seen = {"ended": ended} if ended else json.loads(file.read_text())
    return {**seen, "log": (folder / f"{rank}.log").read_text(errors="replace")[-4000:]}


def main(module: str, *names: str) -> None:
    """Print what was seen, by the names of the facts: of all, or of those that are named."""
    facts = facts_of(importlib.import_module(module))
    print(json.dumps({name: measure(facts[name]) for name in names or facts}))


if __name__ == "__main__":
    # By its full name: what marks a fact has to be of the module that the facts have imported.
    importlib.import_module("tests.facts_of_torch.pairs").main(*sys.argv[1:])
