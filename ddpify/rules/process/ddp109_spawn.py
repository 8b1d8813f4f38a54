"""DDP109: processes are spawned by each process that torchrun has started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, Rule, Severity
from ddpify.rules.process.spawned import counted_apart, local_functions, misfits
from ddpify.rules.shared.parents import SPAWN
from ddpify.site import Site

LOCAL = "LOCAL_RANK"
# A program that asks if the variable is there may do without.
_ASKS = re.compile(rf"""get(?:env)?\(\s*["']{LOCAL}|["']{LOCAL}["']\s+(?:not\s+)?in\b""")


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per spawn with arguments that do not fit or of a function that cannot be
    sent, and per spawn in a program whose processes need torchrun's variables."""
    for one in misfits(run):
        yield Finding(
            "DDP109",
            one.call.site,
            f"each process ends with a TypeError: the function {one.what}",
            Severity.ERROR,
            advice="leave the rank out of args: spawn gives it",
            because=((one.function, "the function"),),
        )
    for one in local_functions(run):
        yield Finding(
            "DDP109",
            one.call.site,
            f"the processes cannot be sent a function that is local: `{one.what}`",
            Severity.ERROR,
            advice="define it at the top level of a file, and give it what it needs as args",
            because=((one.function, "the function"),),
        )
    for spawn, severity, what in counted_apart(run):
        yield Finding(
            "DDP109",
            spawn.site,
            f"{what}: the group waits for ranks that nobody starts, or has too many",
            severity,
            advice="give the group the number of processes that are spawned",
        )
    yield from _again(run)


def _again(run: Run) -> Iterable[Finding]:
    """Where each process of torchrun starts several."""
    if run.frameworks or any(store.key == LOCAL for store in run.stores):
        return
    if any(_ASKS.search(module.source.text) for module in run.modules.values()):
        return
    for call in run.named(SPAWN):
        need = next(_needs(run, call), None)
        if call.everywhere and need is not None:
            yield Finding(
                "DDP109",
                call.site,
                "each process of torchrun starts more of them, and too many join the group",
                Severity.ERROR,
                advice="let one start the processes: torchrun, without spawn",
                because=((need, "needs LOCAL_RANK, which only torchrun sets"),),
            )


def _needs(run: Run, spawn: RankCall) -> Iterator[Site]:
    """Where the processes get ``os.environ["LOCAL_RANK"]``."""
    for call in run.calls:
        if any(one.node is spawn.node for one in call.stack):
            origins = (origin for value in call.given for origin in value.all_origins)
            yield from (origin.site for origin in origins if origin.what == LOCAL)


_PROGRAM = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, world):
    {start}
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    world = torch.cuda.device_count()
    mp.spawn(work, args=(world,), nprocs=world){mark}
"""

_ENTRY = """\
import torch
import torch.distributed as dist
from torch import multiprocessing

import processes


def part(number, steps):
    processes.join()
    for _ in range(steps):
        dist.all_reduce(torch.ones(1, device="cuda"))
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.spawn(part, args=(10,), nprocs=8)  # DDP109
"""

_BY_HAND = """os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "29500"
    torch.cuda.set_device({})
    dist.init_process_group("nccl", rank=rank, world_size=world)"""
_ASKED = 'int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else rank'

RULE = Rule(
    "DDP109",
    "spawn-under-torchrun",
    "torchrun starts one process per GPU. If each of them spawns one per GPU again, N times N"
    " processes with N different ranks ask for one group of N. Who meets whom is chance: of nine"
    " runs of two by two three ended with an error, two hung, and in four there were two groups,"
    " each of which went on by itself, without an error. And spawn gives each process its number"
    " before what is in args: with the rank among them the function gets one too many. A group of"
    " another size than the number of processes never comes together. A lambda, or a function that"
    " another one defines, cannot be sent: AttributeError, Can't pickle local object.",
    "torch.multiprocessing documentation; BUGS L07 (killed after 40 s)",
    bad=(
        Example(
            (
                (
                    "main.py",
                    _PROGRAM.format(
                        start='torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n'
                        '    dist.init_process_group("nccl")',
                        mark="  # DDP109",
                    ),
                ),
            )
        ),
        Example(
            (
                (
                    "main.py",
                    _PROGRAM.replace(
                        "work, args=(world,)", "lambda rank: work(rank, world)"
                    ).format(start=_BY_HAND.format("rank"), mark="  # DDP109"),
                ),
            )
        ),
        Example(
            (
                ("main.py", _ENTRY),
                (
                    "processes.py",
                    "import os\n\nimport torch\nimport torch.distributed as dist\n\n\n"
                    "def join():\n"
                    '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n'
                    '    dist.init_process_group("nccl")\n',
                ),
            )
        ),
    ),
    good=(
        Example((("main.py", _PROGRAM.format(start=_BY_HAND.format("rank"), mark="")),)),
        Example((("main.py", _PROGRAM.format(start=_BY_HAND.format(_ASKED), mark="")),)),
    ),
    lint=lint,
    fixes=False,
)
