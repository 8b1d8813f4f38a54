"""DDP902: a gradient scaler that does not know of FSDP1's shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.ranks.words import DDP, FSDP
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import FLAT
from ddpify.rules.shared.scalers import SCALERS, is_on


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per plain scaler that steps the optimizer of an FSDP1 model."""
    done: set[RankThing] = set()
    for call in run.methods("step"):
        for scaler, wrapper in _pairs(call):
            if scaler not in done and scaler.call is not None:
                done.add(scaler)
                yield _finding(scaler.call, wrapper)


def _pairs(step: RankCall) -> Iterator[tuple[RankThing, RankThing]]:
    things = step.receiver.things if step.receiver is not None else ()
    known = bool(things) and all(thing.name in SCALERS for thing in things)
    if not step.args or not known or is_on(step.receiver) is False:
        return
    sources = set(step.args[0].sources())
    wrappers = [t for t in sources if t.kind == "result" and t.name == FSDP and _shards(t)]
    if wrappers and not any(t.kind == "result" and t.name == DDP for t in sources):
        yield things[0], wrappers[0]


def _shards(wrapper: RankThing) -> bool:
    strategy = wrapper.call.arg(2, "sharding_strategy") if wrapper.call is not None else None
    names = strategy.names() if strategy is not None else set()
    return not any(name.endswith("NO_SHARD") for name in names)


def _finding(scaler: RankCall, wrapper: RankThing) -> Finding:
    because = ((wrapper.call.site, "the model is sharded here"),) if wrapper.call else ()
    return Finding(
        "DDP902",
        scaler.site,
        "each rank looks for overflow in its own shard: some skip a step that the others take",
        Severity.ERROR,
        advice="use torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler",
        because=because,
    )


RULE = Rule(
    "DDP902",
    "unsharded-grad-scaler",
    "FSDP1 leaves each rank a shard of the gradients. A plain GradScaler looks for infinities in"
    " that shard only, so one rank may skip the step and lower its scale while the others step:"
    " wrong weights or a hang. ShardedGradScaler agrees between ranks; with FSDP2"
    " torch.amp.GradScaler is right (measured: both ranks skip).",
    "fairscale#179, pytorch PR#76918; BUGS G12",
    lint=lint,
    words=("GradScaler",),
    bad=(
        changed(
            FLAT,
            ("lr=1e-3)\n", 'lr=1e-3)\n    scaler = torch.amp.GradScaler("cuda")  # DDP902\n'),
            ("            loss.backward()", "            scaler.scale(loss).backward()"),
            ("optimizer.step()", "scaler.step(optimizer)\n            scaler.update()"),
        ),
    ),
    good=(
        FLAT,
        changed(
            FLAT,
            (
                "as FSDP\n",
                "as FSDP\n"
                "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\n",
            ),
            ("lr=1e-3)\n", "lr=1e-3)\n    scaler = ShardedGradScaler()\n"),
            ("            loss.backward()", "            scaler.scale(loss).backward()"),
            ("optimizer.step()", "scaler.step(optimizer)\n            scaler.update()"),
        ),
    ),
    fixes=False,
)
