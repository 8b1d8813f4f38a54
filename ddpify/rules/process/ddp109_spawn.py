"""DDP109: processes are spawned by each process that torchrun has started."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, Rule, Severity
from ddpify.rules.shared.outputs import SPAWN

LOCAL = "LOCAL_RANK"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per spawn in a program whose processes need torchrun's variables."""
    if run.frameworks or any(store.key == LOCAL for store in run.stores):
        return
    for call in run.named(SPAWN):
        inside = {c.function for c in run.calls if any(s.node is call.node for s in c.stack)}
        needs = [f for f in inside if f is not None and _needs(f.node)]
        if call.everywhere and needs:
            yield Finding(
                "DDP109",
                call.site,
                "each process of torchrun starts more of them: a hang, as too many join the group",
                Severity.ERROR,
                advice="let one start the processes: torchrun, without spawn",
                because=((needs[0].site, "needs LOCAL_RANK, which only torchrun sets"),),
            )


def _needs(function: ast.AST) -> bool:
    """Whether `os.environ["LOCAL_RANK"]` is read without asking first if it is there."""
    tested = any(isinstance(n, ast.Compare) and LOCAL in set(_texts(n)) for n in ast.walk(function))
    return not tested and any(_is_read(node) for node in ast.walk(function))


def _is_read(node: ast.AST) -> bool:
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return False
    return ast.unparse(node.value).endswith("environ") and LOCAL in set(_texts(node.slice))


def _texts(node: ast.AST) -> Iterator[object]:
    return (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))


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

RULE = Rule(
    "DDP109",
    "spawn-under-torchrun",
    "torchrun starts one process per GPU. If each of them spawns one per GPU again, N times N"
    " processes with N different ranks ask for one group of N: it never comes together.",
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
        Example(
            (
                (
                    "main.py",
                    _PROGRAM.format(
                        start='os.environ["MASTER_ADDR"] = "localhost"\n'
                        '    os.environ["MASTER_PORT"] = "29500"\n'
                        "    torch.cuda.set_device(rank)\n"
                        '    dist.init_process_group("nccl", rank=rank, world_size=world)',
                        mark="",
                    ),
                ),
            )
        ),
    ),
    lint=lint,
)
