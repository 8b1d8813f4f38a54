"""DDP110: a name that torch.distributed no longer has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.modules import Module
from ddpify.ranks.run import Run
from ddpify.ranks.words import DIST, FSDP
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS
from ddpify.rules.shared.written import imports
from ddpify.site import Site

# Absent in torch 2.13, and what has taken the place.
REMOVED = {
    "torch.distributed.fsdp.wrap.default_auto_wrap_policy": "size_based_auto_wrap_policy",
    "torch.distributed.pipeline": "torch.distributed.pipelining",
    "torch.distributed.algorithms.checkpoint": "torch.utils.checkpoint",
    **{
        f"torch.distributed.{name}_multigpu": f"{name}, one process per GPU"
        for name in ("all_reduce", "broadcast", "all_gather", "reduce", "reduce_scatter")
    },
}


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per removed name that is imported, called or passed."""
    for module in run.modules.values():
        for site, name, instead in _imports(module):
            yield _finding(site, name, instead)
    for call in run.calls:
        if call.name in REMOVED and call.name.startswith(DIST) and call.name.endswith("_multigpu"):
            yield _finding(call.site, call.name, REMOVED[call.name])
        if call.name == FSDP and "fsdp_auto_wrap_policy" in call.kwargs:
            yield _finding(call.site, "the argument fsdp_auto_wrap_policy", "auto_wrap_policy")


def _finding(site: Site, name: str, instead: str) -> Finding:
    return Finding(
        "DDP110",
        site,
        f"{name} is gone from torch: the program stops here",
        Severity.ERROR,
        advice=f"use {instead}",
    )


def _imports(module: Module) -> Iterator[tuple[Site, str, str]]:
    """Imports of removed names that no `try` or `if` stands around."""
    if not any(name.rpartition(".")[2] in module.source.text for name in REMOVED):
        return
    for site, names in imports(module):
        for name in names:
            gone = next((g for g in REMOVED if name == g or name.startswith(f"{g}.")), None)
            if gone is not None:
                yield site, gone, REMOVED[gone]
                break


RULE = Rule(
    "DDP110",
    "removed-name",
    "torch.distributed has lost names over the years: default_auto_wrap_policy and the argument"
    " fsdp_auto_wrap_policy (1.13), the *_multigpu collectives (2.2), torch.distributed.pipeline"
    " (2.4). Code that says them stops with ImportError, AttributeError or TypeError.",
    "pytorch PR#76858, accelerate PR#475, tutorials#2975; BUGS L13",
    bad=(
        changed(
            PROCESS,
            (
                "from torch import nn\n",
                "from torch import nn\n"
                "from torch.distributed.pipeline.sync import Pipe  # DDP110\n",
            ),
        ),
        changed(
            PROCESS,
            (
                "        if dist.get",
                '        dist.all_reduce_multigpu([torch.ones(1, device="cuda")])  # DDP110\n'
                "        if dist.get",
            ),
        ),
    ),
    good=(
        PROCESS,
        changed(
            PROCESS,
            (
                "\n\ndef main",
                "\ntry:\n    from torch.distributed.pipeline.sync import Pipe\n"
                "except ImportError:\n    Pipe = None\n\n\ndef main",
            ),
        ),
    ),
    lint=lint,
)
