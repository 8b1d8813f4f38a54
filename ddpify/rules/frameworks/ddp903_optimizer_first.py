"""DDP903: the optimizer holds the parameters that the model had before it was sharded."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.details import Optimized
from ddpify.facts.joining import flat_deps
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.ranks.words import FSDP
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import FLAT, SHARDED
from ddpify.rules.frameworks.sharded import shards_of, steps
from ddpify.settings import Settings
from ddpify.site import Site
from ddpify.strategies import of

_MADE = "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per optimizer that would hold what a model had before it was sharded."""
    if not of(settings).shards:
        return
    sharded: dict[Site, int] = {}
    for wrapper in (f.model for f in facts.forwards if f.model.kind is Kind.WRAPPED):
        born = whole(wrapper).born
        sharded[born] = min(wrapper.serial, sharded.get(born, wrapper.serial))
    optimizers = (t for step in facts.steps for t in (step.receiver or NOTHING).of(Kind.OPTIMIZER))
    for one in dict.fromkeys(optimizers):
        given = one.detail(Optimized)
        held = flat_deps(given.parameters) if given is not None else ()
        taken = [(whole(o).born, dep.serial) for dep in held for o in _owners_of(dep)]
        if any(serial < sharded.get(born, 0) for born, serial in taken):
            yield Finding(
                "DDP903",
                one.born,
                "the model would be sharded after this: the optimizer would step parameters that"
                " are no longer used",
                Severity.ERROR,
                advice="make the optimizer once the model has its name, then run again",
            )


def _owners_of(dep: Thing) -> tuple[Thing, ...]:
    """The modules whose parameters something is."""
    return dep.inner.things if dep.kind is Kind.PARAMETERS and dep.inner is not None else ()


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per optimizer that is stepped after its model was sharded."""
    for call in run.calls:
        if not _is_optimizer(call) or call.result is None:
            continue
        value = call.arg(0, "params")
        for shard in shards_of(run, value, call.order) if value is not None else ():
            if _replaces(shard) and steps(run, call.result.things[0], shard.order):
                yield _finding(call, shard)
                break


def _is_optimizer(call: RankCall) -> bool:
    last = call.name.rpartition(".")[2]
    return (
        call.name.startswith("torch.optim.") and last[:1].isupper() and "lr_sched" not in call.name
    )


def _replaces(shard: RankCall) -> bool:
    """Whether the parameters are new objects afterwards. FSDP1 may keep the original ones."""
    if shard.name != FSDP:
        return True
    flag = shard.kwargs.get("use_orig_params")
    return not shard.star if flag is None else flag.constant is False


def _finding(call: RankCall, shard: RankCall) -> Finding:
    return Finding(
        "DDP903",
        call.site,
        "the model is sharded after this: the optimizer steps parameters that are no longer used",
        Severity.ERROR,
        advice="make the optimizer after the model is sharded",
        because=((shard.site, "here the parameters are replaced by shards"),),
    )


RULE = Rule(
    "DDP903",
    "optimizer-before-shard",
    "fully_shard (and FSDP1 without use_orig_params=True) replaces the parameters. An optimizer"
    " made before holds the old ones: the model never changes, zero_grad() clears nothing, and"
    " there is no error.",
    "torch.distributed.fsdp.fully_shard; accelerate#3256, pytorch#149205; BUGS G18",
    check,
    lint=lint,
    bad=(
        changed(
            SHARDED,
            (_MADE, ""),
            ("    fully_shard(model)\n", _MADE[:-1] + "  # DDP903\n    fully_shard(model)\n"),
        ),
        changed(
            FLAT,
            (_MADE, ""),
            (
                "    model = FSDP",
                "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # DDP903\n"
                "    model = FSDP",
            ),
        ),
    ),
    good=(
        SHARDED,
        changed(
            FLAT,
            (_MADE, ""),
            (
                "    model = FSDP(net, device_id=local_rank)",
                "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
                "    model = FSDP(net, device_id=local_rank, use_orig_params=True)",
            ),
        ),
    ),
    fixes=False,
)
