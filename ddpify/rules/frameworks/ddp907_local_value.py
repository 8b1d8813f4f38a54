"""DDP907: a number taken from this rank's shard passes for that of the model."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.words import AGREEING_OPS
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import SHARDED
from ddpify.rules.frameworks.sharded import parameters_after

_REDUCTIONS = frozenset("norm vector_norm sum mean max min amax amin std var prod median".split())
# What stays a tensor of shards.
_ON_THE_WAY = _REDUCTIONS | frozenset(
    "abs square pow sqrt detach float double half bfloat16 clone exp log neg flatten view stack"
    " cat".split()
)
_FUNCTIONS = frozenset(
    "torch.norm torch.sum torch.mean torch.sqrt torch.stack torch.cat torch.abs torch.max"
    " torch.linalg.vector_norm".split()
)
_END = "    dist.destroy_process_group()\n"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per ``.item()`` of a reduction over sharded parameters."""
    for call in run.calls:
        value = _taken(call)
        if value is None or not _reduced(value):
            continue
        origin = next(parameters_after(value), None)
        if origin is not None and _pure(value) and not _agreed(run, call):
            yield Finding(
                "DDP907",
                call.site,
                "this is the value of this rank's shard, not of the whole tensor",
                Severity.ERROR,
                advice="add .full_tensor() before .item(), on all ranks",
                because=((origin.site, "these parameters are sharded"),),
            )


def _taken(call: RankCall) -> RankValue | None:
    """The expression that is turned into a Python number."""
    if call.method == "item" and call.receiver is not None:
        return call.receiver
    return call.args[0] if call.name == "builtins.float" and len(call.args) == 1 else None


def _reduced(value: RankValue) -> bool:
    """Whether an expression is tensor arithmetic with a reduction in it, and nothing else."""
    ways = [_way(thing) for thing in value.things]
    return bool(ways) and all(way is not None for way in ways) and any(ways)


def _way(thing: RankThing) -> bool | None:
    """Whether a reduction led to this; None if something unknown did."""
    if thing.kind == "attribute":
        return False if thing.name.endswith((".grad", ".data")) else None
    call = thing.call
    if thing.kind != "result" or call is None:
        return None
    before = call.args[0] if call.name in _FUNCTIONS and call.args else call.receiver
    if before is None or call.method not in _ON_THE_WAY:
        return None
    held = [*before.things, *(t for item in before.items or () for t in item.things)]
    ways = [_way(one) for one in held]
    return None if None in ways else call.method in _REDUCTIONS or any(ways)


def _pure(value: RankValue) -> bool:
    """Whether nothing on the way gathered the shards, or took the local part on purpose."""
    spoiled = ("full_tensor", "to_local", "redistribute", "clip_grad_norm_", "__call__", "unshard")
    return not any(thing.name.rpartition(".")[2] in spoiled for thing in value.sources())


def _agreed(run: Run, item: RankCall) -> bool:
    """Whether the number is reduced over the ranks afterwards."""
    made = set(item.result.things) if item.result is not None else set()
    return any(
        call.order > item.order
        and call.name.startswith("torch.distributed.")
        and call.method in AGREEING_OPS
        and any(not made.isdisjoint(arg.sources()) for arg in call.given)
        for call in run.calls
    )


RULE = Rule(
    "DDP907",
    "local-value-of-dtensor",
    "Reductions of a sharded parameter or gradient are themselves unfinished: .item() gives the"
    " part of this rank (measured: norms .767 and .658 where 1.011 is right) without an error. Only"
    " .full_tensor() finishes them. What clip_grad_norm_ returns is complete.",
    "pytorch#170862, torchtitan#766; BUGS M06",
    lint=lint,
    bad=(
        changed(
            SHARDED,
            (
                _END,
                "    norms = [p.norm().item() for p in model.parameters()]  # DDP907\n"
                '    if dist.get_rank() == 0:\n        torch.save(norms, "norms.pt")\n' + _END,
            ),
        ),
    ),
    good=(
        changed(
            SHARDED,
            (
                _END,
                "    norms = [p.norm().full_tensor().item() for p in model.parameters()]\n"
                '    if dist.get_rank() == 0:\n        torch.save(norms, "norms.pt")\n' + _END,
            ),
        ),
    ),
)
