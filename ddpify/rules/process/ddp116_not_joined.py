"""DDP116: a script asks for the rank, or reduces, and never joins a process group."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.collective import collective
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.process.imported_early import made_by_imports
from ddpify.rules.shared.exclusion import excludes

_ASKING: Final = words.RANK_CALLS | words.SIZE_CALLS


def lint(run: Run) -> Iterable[Finding]:
    """Yield the first call that needs a process group, if nothing that was read makes one."""
    if run.session is not None:
        yield from _too_early(run)
    if not run.script or not run.complete or run.opened or run.session is not None:
        return
    call = next((one for one in run.calls if _needs_group(one)), None)
    if call is not None:
        yield Finding(
            "DDP116",
            call.site,
            "no process group was joined: this ends with an error",
            Severity.ERROR,
            advice='dist.init_process_group("nccl") before it',
        )


def _too_early(run: Run) -> Iterable[Finding]:
    """What needs a group before it is joined, and a group that is joined twice."""
    joins = [call for call in run.named(f"{words.DIST}init_process_group") if _is_certain(call)]
    if not run.script or not joins or len(joins) < len(list(run.named(joins[0].name))):
        return
    leaves = [call.order for call in run.named(f"{words.DIST}destroy_process_group")]
    for one, other in pairwise(joins):
        left = any(one.order < order < other.order for order in leaves)
        if not left and not excludes(run, one, other):
            yield Finding(
                "DDP116",
                other.site,
                "the process group is joined twice: this ends with an error",
                Severity.ERROR,
                advice="join it once",
                because=((one.site, "joined here"),),
            )
    early = (one for one in run.calls if one.order < joins[0].order)
    early = (one for one in early if not any(excludes(run, one, join) for join in joins))
    call = next((one for one in early if _needs_group(one) or _is_dealt(one)), None)
    imported = made_by_imports(run, joins[0]) if call is None else ()
    call = call or next((one for one in imported if _asks_group(one)), None)
    if call is not None:
        yield Finding(
            "DDP116",
            call.site,
            "no process group is joined yet: this ends with an error",
            Severity.ERROR,
            advice="join it before",
            because=((joins[0].site, "joined here"),),
        )


def _is_certain(call: RankCall) -> bool:
    """Whether all ranks come here, once: no condition is around it, or it is known to hold."""
    sure = all(guard.test.known for guard in call.conditions)  # `if "RANK" in os.environ`
    return call.everywhere and sure and not call.loops and not call.swallows


def _is_dealt(call: RankCall) -> bool:
    """``DistributedSampler(data)`` asks for the rank."""
    asks = call.arg(1, "num_replicas") is None or call.arg(2, "rank") is None
    return call.name == words.SAMPLER and _is_certain(call) and asks and not call.star


def _needs_group(call: RankCall) -> bool:
    asked = any("is_initialized" in one.text or "is_available" in one.text for one in call.guards)
    return _asks_group(call) and _is_certain(call) and not asked


def _asks_group(call: RankCall) -> bool:
    asks = call.name in _ASKING and call.name.startswith(words.DIST)
    meets = collective(call) is not None and call.method not in ("init_device_mesh",)
    return asks or (meets and call.method not in words.SESSION_OPS)


_ALONE = """import os

import torch
import torch.distributed as dist


def summed(value):
    dist.all_reduce(value){}
    return value


def main():
    {}
    value = summed(torch.ones(1) * int(os.environ["RANK"]))
    print(value / int(os.environ["WORLD_SIZE"]))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


def _example(first: str, mark: str = "") -> Example:
    return Example((("main.py", _ALONE.format(mark, first)),))


_MARK = "  # DDP116"

RULE = Rule(
    "DDP116",
    "group-not-joined",
    "Collectives, and the rank and the number of processes that torch.distributed tells, are those"
    " of a process group. torchrun starts the processes, but joins none: without"
    ' init_process_group() each ends with "Default process group has not been initialized".'
    " So does a file that asks when it is imported, where the script joins afterwards.",
    "torch.distributed.init_process_group documentation",
    lint=lint,
    bad=(
        _example("torch.manual_seed(0)", _MARK),
        _example(f"print(dist.get_rank()){_MARK}"),
        _example(f'print(dist.get_rank()){_MARK}\n    dist.init_process_group("gloo")'),
        on_ranks('dist.init_process_group("gloo")  # DDP116'),
        on_ranks('if "RANK" in os.environ:\n    dist.init_process_group("gloo")  # DDP116'),
    ),
    good=(
        _example('dist.init_process_group("gloo")'),
        on_ranks("""
            dist.destroy_process_group()
            dist.init_process_group("gloo")
            """),
        on_ranks('if not dist.is_initialized():\n    dist.init_process_group("gloo")'),
        _example("if dist.is_initialized():\n        print(dist.get_rank())\n    return"),
    ),
    fixes=False,
)
