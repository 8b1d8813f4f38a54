"""DDP310: a wrapper around a wrapper."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import Call, Thing, Value
from ddpify.ranks.run import Run
from ddpify.ranks.values import Made
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.wrapped import exclusive

_NAMES = {
    words.DDP: "DistributedDataParallel",
    words.FSDP: "FullyShardedDataParallel",
    words.FULLY_SHARD: "fully_shard",
    words.DATA_PARALLEL: "DataParallel",
}


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per wrapper that is given a wrapped model."""
    for call in run.named(*_NAMES):
        module = call.arg(0, "module")
        things = module.things if module is not None else ()
        inside = {_wrapper(thing, call) for thing in things}
        if len(inside) != 1 or None in inside or not _is_certain(module):
            continue
        inner = inside.pop()
        assert inner is not None
        yield Finding(
            "DDP310",
            call.place,
            f"{_NAMES[call.name]} around {_NAMES[inner.name]}: gradients are reduced twice, on the"
            " wrong devices, or not at all",
            Severity.ERROR,
            advice="use one wrapper",
            because=((inner.place, f"{_NAMES[inner.name]} here"),),
        )


def _is_certain(module: Value | None) -> bool:
    """Whether it is one object, not one of several: `model.module if wrapped else model`."""
    return module is not None and isinstance(module.atoms[0], Made)


def _wrapper(thing: Thing, call: Call) -> Call | None:
    if thing.kind == "result" and thing.name in _NAMES and thing.call is not None:
        return None if exclusive(thing.call, call) else thing.call
    sharded = thing.sharded
    if call.name == words.DDP and sharded is not None and sharded.order < call.order:
        return None if exclusive(sharded, call) else sharded  # `if fsdp: … else: DDP(…)`
    return None


RULE = Rule(
    "DDP310",
    "nested-wrap",
    "DataParallel around DistributedDataParallel, or DDP around itself, is accepted silently and"
    " pays for two reductions; DDP around a fully_shard-ed model stops with a RuntimeError, and"
    " fully_shard of a DDP object is accepted and does something else than either.",
    "pytorch docs (DataParallel and DistributedDataParallel); BUGS G21, L19",
    lint=lint,
    bad=(
        trained("""
            model = DDP(nn.DataParallel(nn.Linear(16, 4)))  # DDP310
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
    good=(
        trained("""
            model = nn.Linear(16, 4)
            if dist.get_world_size() > 1:
                model = DDP(model)
            else:
                model = nn.DataParallel(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
)
