"""DDP110: a name that torch.distributed no longer has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import Module
from ddpify.ranks.run import Run
from ddpify.ranks.words import DIST, FSDP, FULLY_SHARD
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS
from ddpify.rules.examples.sharded import SHARDED
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
# Of FullyShardedDataParallel, and what says the same to fully_shard.
_OF_FSDP1 = {
    "sharding_strategy": "reshard_after_forward, and a mesh of two dimensions for HYBRID_SHARD",
    "auto_wrap_policy": "a call for each block, before the one for the model",
    "cpu_offload": "offload_policy=CPUOffloadPolicy()",
    "mixed_precision": "mp_policy=MixedPrecisionPolicy(…)",
    "device_mesh": "mesh",
    "process_group": "mesh",
    "ignored_states": "ignored_params",
    "ignored_modules": "ignored_params, their parameters",
    "device_id": "model.to(device), or nothing where the mesh is of the device's kind",
    "param_init_fn": "model.to_empty(device=…) and a loop of reset_parameters(), afterwards",
    "sync_module_states": "set_model_state_dict(…, broadcast_from_rank0=True)",
    "backward_prefetch": "model.set_modules_to_backward_prefetch(…), or nothing",
    "forward_prefetch": "model.set_modules_to_forward_prefetch(…), or nothing",
    "limit_all_gathers": "nothing: it never runs ahead of the computation",
    "use_orig_params": "nothing: parameters always keep their names and shapes",
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
        if call.name == FULLY_SHARD:
            yield from _of_fsdp1(call)


def _of_fsdp1(call: RankCall) -> Iterator[Finding]:
    """The arguments of FSDP1 that fully_shard has not: a TypeError."""
    wrong = [name for name in call.kwargs if name in _OF_FSDP1]
    if wrong:
        yield Finding(
            "DDP110",
            call.site,
            f"fully_shard has no argument {', '.join(wrong)}: the program stops here",
            Severity.ERROR,
            advice="; ".join(f"for {name}: {_OF_FSDP1[name]}" for name in wrong),
        )


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


_SHARD = "    fully_shard(model)\n"
RULE = Rule(
    "DDP110",
    "removed-name",
    "torch.distributed has lost names over the years: default_auto_wrap_policy and the argument"
    " fsdp_auto_wrap_policy (1.13), the *_multigpu collectives (2.2), torch.distributed.pipeline"
    " (2.4). FSDP2's fully_shard has no argument of FullyShardedDataParallel but the module. Code"
    " that says them stops with ImportError, AttributeError or TypeError.",
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
        changed(SHARDED, (_SHARD, "    fully_shard(model, device_id=0)  # DDP110\n")),
        changed(
            SHARDED,
            (_SHARD, "    shard(model)\n"),
            (
                "def main",
                "def shard(model):\n    options = dict(sync_module_states=True)\n"
                "    fully_shard(model, use_orig_params=True, **options)  # DDP110\n\n\ndef main",
            ),
        ),
    ),
    good=(
        PROCESS,
        changed(SHARDED, (_SHARD, "    fully_shard(model, reshard_after_forward=True)\n")),
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
    fixes=False,
)
