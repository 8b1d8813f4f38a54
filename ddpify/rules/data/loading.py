"""Whole batches that ranks load together: each its rows, where all get all of them.

`share_loading(DataLoader(...))` is for batches that torch collates from a data set with an index;
of others each rank loads all samples.
"""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.details import loader_arguments
from ddpify.facts.events import Call
from ddpify.facts.library_classes import makes_its_own
from ddpify.facts.model import Facts, Loader, Role
from ddpify.facts.values import Thing, Value
from ddpify.names import INSTALLED
from ddpify.rules.base import Finding, Severity
from ddpify.rules.data import orders, streams
from ddpify.rules.data.derived import shared
from ddpify.rules.edits import proof


def shared_loading(facts: Facts) -> Iterable[Finding]:
    """Yield one finding per loader whose batches ranks can load together."""
    trained = {thing for loop in facts.training for thing in loop.loaders}
    # What no loop goes over, perhaps of one rank alone, does no harm beside it.
    idle = {t for x in facts.loaders if Role.EVALUATION not in x.roles for t in x.things}
    for loader in facts.loaders:
        if Role.TRAINING not in loader.roles or not _is_plain(facts, loader):
            continue
        mine = [thing for thing in loader.things if thing in trained]
        edits = [shared(facts, thing, trained | idle, "share_loading") for thing in mine]
        if None not in edits and not facts.named(f"{INSTALLED}.share_loading"):
            yield Finding(
                "DDP202",
                loader.call.site,
                "each rank would load all samples of each batch",
                Severity.WARNING,
                tuple(dict.fromkeys(one for one in edits if one is not None)),
                because=proof(loader.things),
            )


def _is_plain(facts: Facts, loader: Loader) -> bool:
    call = loader.call
    shown = any(loop.function in facts.helpers for loop in loader.evaluations if loop.function)
    if call.star or call.bound or shown or streams.why_not(loader):
        return False
    taken = any(orders.taken_apart(facts, c, loader) for c in facts.named("builtins.iter"))
    return not taken and all(_of_torch(call, thing) for thing in loader.things)


def _of_torch(call: Call, thing: Thing) -> bool:
    """Whether torch draws the order of a loader's batches, and collates them."""
    given = loader_arguments(thing)
    own = (*given.samplers, call.arg(6, "collate_fn"))
    size = given.batch_size
    whole = size is not None and size.known and size.const is None
    odd = makes_its_own(thing) or whole or bool(streams.stream_of(thing))
    return not (odd or any(map(_is_given, own)))


def _is_given(value: Value | None) -> bool:
    return value is not None and not (value.known and value.const is None)
