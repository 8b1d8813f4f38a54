"""DDP973: a LightningModule that is to be sharded is whole on each device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.facts.model import Facts
from ddpify.ranks.hooks import TRAINER
from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import ClassDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING, SHARDED, SHARDING
from ddpify.rules.frameworks.lightning_devices import TrainerArguments
from ddpify.rules.frameworks.lightning_shards import (
    HOOK,
    ShardedModule,
    hook,
    modules,
    shards_itself,
)
from ddpify.rules.frameworks.lightnings import MODULE, fitted
from ddpify.rules.shared.sharding import unknown_classes
from ddpify.settings import Settings
from ddpify.source import Site
from ddpify.strategies import of

_CODE: Final = "DDP973"
_STRATEGY: Final = "lightning.pytorch.strategies.ModelParallelStrategy"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield what has the Trainer's processes share the module, or why they cannot."""
    if not facts.trainers or not of(settings).shards:
        return
    site, found = facts.trainers[0], modules(facts)
    trainer = TrainerArguments(facts, site)
    if trainer.is_sharded and found and all(map(shards_itself, found)):
        return
    whys = [
        *_several(facts.trainers, found),
        *trainer.why_not(settings),
        *_unlike(facts, found, settings),
    ]
    edits = _edits(trainer, found, settings) if not whys else ()
    if whys or not edits:
        for why in whys or ["the LightningModule has no constructor to build its layers in"]:
            yield Finding(_CODE, site, why, Severity.ERROR, advice="or take --strategy ddp")
        return
    message = "each device has all weights, gradients and optimizer states of the module"
    yield Finding(_CODE, site, message, Severity.ERROR, tuple(edits))


def _several(sites: tuple[Site, ...], found: list[ShardedModule]) -> Iterator[str]:
    if len(sites) > 1:
        yield "one Trainer shards the module, another finds it in shards: make one"
    if len(found) != 1:
        yield f"one LightningModule of the project is to be sharded: {len(found)} can be followed"


def _unlike(facts: Facts, found: list[ShardedModule], settings: Settings) -> Iterator[str]:
    for one in found:
        if HOOK in one.methods:
            yield f"{one.info.name} has a {HOOK} of its own: shard it there"
        if "training_step" not in one.methods:
            yield f"{one.info.name} has no training_step in the project"
    for name in unknown_classes(facts, settings):
        yield f"--fsdp-wrap {name}: no class of the project has this name"


def _edits(
    trainer: TrainerArguments, found: list[ShardedModule], settings: Settings
) -> tuple[Edit, ...]:
    made = [hook(one, settings) for one in found]
    ready = [one for one in made if one is not None]
    return (*ready, *trainer.edits()) if len(ready) == len(made) else ()


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per module that is given to such a Trainer and has no hook to shard it."""
    for call, cls in fitted(run) if any(run.named(_STRATEGY)) else ():
        if call.name == f"{TRAINER}.fit" and _is_sharding(call) and not _configures(cls):
            yield Finding(
                _CODE,
                call.site,
                f"{cls.name} has no {HOOK} in which ModelParallelStrategy would have it sharded:"
                " Lightning ends with a TypeError",
                Severity.ERROR,
                advice=f"give it a {HOOK} that calls fully_shard on its blocks and itself",
            )


def _is_sharding(fit: RankCall) -> bool:
    """Whether the Trainer itself was made with the strategy, not another one of the program."""
    trainers = (one.call for one in fit.receiver.things) if fit.receiver is not None else ()
    given = [made.kwargs.get("strategy") for made in trainers if made is not None]
    return any(v is not None and any(t.name == _STRATEGY for t in v.things) for v in given)


def _configures(cls: ClassDefinition) -> bool:
    """Whether a class has the hook, or may have it from a library."""
    return cls.method(HOOK) is not None or cls.external_bases() != {MODULE}


_FIT: Final = "    trainer.fit(Net(), datamodule=Rows())\n"
_MADE: Final = "    trainer = L.Trainer("
_GIVEN: Final = "strategy=ModelParallelStrategy(2, 1)"

RULE = Rule(
    _CODE,
    "lightning-module-not-sharded",
    "ModelParallelStrategy shards nothing by itself: it gives the module a mesh, and the module's"
    " configure_model calls fully_shard. Without that hook Lightning ends with a TypeError.",
    "lightning.pytorch.strategies.ModelParallelStrategy (2.6.6); docs/lightning.md",
    check,
    lint=lint,
    bad=(
        changed(SHARDED, (SHARDING, ""), (_FIT, f"{_FIT[:-1]}  # DDP973\n")),
        changed(
            SHARDED,
            (SHARDING, ""),
            (_GIVEN, "strategy=shared"),
            (_MADE, f"    shared = {_GIVEN.partition('=')[2]}\n{_MADE}"),
            (_FIT, "    net = Net()\n    trainer.fit(net, datamodule=Rows())  # DDP973\n"),
        ),
    ),
    good=(LIGHTNING, SHARDED),
)
