"""Programs that Accelerate or Fabric distributes: what they are given, and how they were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.prepared import CALLS
from ddpify.ranks.run import Run
from ddpify.rules.shared.wrapped import parts_of

ACCELERATE: Final = "accelerate.Accelerator"
FABRIC: Final = "lightning.fabric.Fabric"
# Blocks in which a backward of a model may stay without a meeting of the ranks.
HOLDS: Final = (f"{ACCELERATE}.accumulate", f"{ACCELERATE}.no_sync", f"{FABRIC}.no_backward_sync")
_DEALING: Final = frozenset({"dataloader_config", "split_batches", "dispatch_batches"})
_STEPS: Final = ("gradient_accumulation_steps", "gradient_accumulation_plugin")


def of_framework(call: RankCall) -> bool:
    """Whether a call is a method of Accelerate's object or of Fabric's."""
    return call.name.startswith((f"{ACCELERATE}.", f"{FABRIC}."))


def option(call: RankCall, *names: str) -> RankValue | None:
    """What the object behind a call was made with under one of these names."""
    made = (t.call for t in call.receiver.sources()) if call.receiver is not None else ()
    given = (one.kwargs.get(name) for one in made if one is not None for name in names)
    return next((value for value in given if value is not None), None)


def deals_otherwise(call: RankCall) -> bool:
    """Whether the Accelerator was made with options on how loaders are dealt."""
    return option(call, *_DEALING, "**") is not None


def micro_batches(call: RankCall) -> int | None:
    """After how many backwards Accelerate steps; None where only the run says it."""
    value = option(call, *_STEPS, "**")
    if value is None:
        return 1
    plugins = (t.call for t in value.things if t.call is not None)
    value = next((c.arg(0, "num_steps") or value for c in plugins), value)
    return value.constant if isinstance(value.constant, int) else None


def prepares(run: Run) -> list[RankCall]:
    """The calls that prepare something, in order."""
    return list(run.named(*CALLS))


def prepared(run: Run) -> set[RankThing]:
    """Everything that a framework was given to prepare, parts of models and wrappers included."""
    given = {t for call in prepares(run) for value in call.given for t in things_of(value)}
    return {part for thing in given for part in parts_of(thing)} | given


def things_of(value: RankValue) -> Iterator[RankThing]:
    """What a value is or holds, with the modules inside of wrappers."""
    for item in (value, *(value.items or ()), *(one for _, one in value.keys or ())):
        for thing in item.things:
            yield thing
            if thing.name == words.DDP and "module" in thing.attrs:
                yield from thing.attrs["module"].things


def everything_known(calls: Iterable[RankCall]) -> bool:
    """Whether no call is given what is not seen: ``prepare(*things)``."""
    return not any(call.star for call in calls)


def within(call: RankCall, hold: RankCall) -> bool:
    """Whether a call is made in the block of a ``with`` that another call opened."""
    things = hold.result.things if hold.result is not None else ()
    return any(thing in value.things for value in call.contexts for thing in things)
