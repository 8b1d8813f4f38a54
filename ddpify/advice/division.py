"""How ``--strategy fsdp`` would divide the models of a program: the units, and the options."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.advice.model import Sharding
from ddpify.facts.blocks import blocks
from ddpify.facts.model import Facts
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Thing
from ddpify.outcome import Outcome
from ddpify.settings import Settings

NODE = 8  # GPUs, where nobody says how many


def sharding(outcome: Outcome, facts: Facts, settings: Settings, gpus: int) -> Sharding:
    """``gpus`` are those of a node; 0: not known."""
    return Sharding(
        blocks=tuple(dict.fromkeys(_blocks(facts))),
        wrap=settings.fsdp_wrap,
        bf16=settings.fsdp_bf16,
        offload=settings.fsdp_offload,
        hybrid=(gpus or NODE) if settings.fsdp_hybrid else 0,
        accumulates=_accumulates(outcome, facts),
    )


def _blocks(facts: Facts) -> Iterator[tuple[str, str]]:
    """The class of a model, and each path to a list of its blocks; of a home's models, shared."""
    for model in facts.models:
        alike = [one for one in facts.models if one.home == model.home] if model.home else [model]
        for path in blocks(facts, [thing for one in alike for thing in one.things]):
            yield from ((_kind(thing), path) for thing in model.things)


def _kind(thing: Thing) -> str:
    return thing.ref.name if isinstance(thing.ref, ClassInfo) else thing.name.rpartition(".")[2]


def _accumulates(outcome: Outcome, facts: Facts) -> bool:
    """Whether gradients are reduced in the last of several backwards, now or once migrated."""
    trees = facts.trees
    written = (
        edit.code for finding in outcome.findings for edit in finding.fix if edit.site.path in trees
    )
    skips = ("ddpify.runtime.gradient_sync", ".no_sync", ".set_requires_gradient_sync")
    return any("gradient_sync(" in code for code in written) or bool(facts.named(*skips))
