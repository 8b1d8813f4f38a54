"""Models that FSDP has sharded, as a run has them."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import same
from ddpify.ranks.words import FSDP, FULLY_SHARD

_PARAMETERS = frozenset({"parameters", "named_parameters"})


def shard_of(thing: RankThing) -> RankCall | None:
    """The call that sharded this module: fully_shard, or the FSDP wrapper around it."""
    if thing.sharded is not None:
        return thing.sharded
    if thing.wrapper is not None and thing.wrapper.name == FSDP:
        return thing.wrapper.call
    return None


def sharded_here(value: RankValue, order: int) -> bool:
    """Whether a value has a module among its things that fully_shard has taken by then."""
    return any(t.sharded is not None and t.sharded.order < order for t in value.sources())


def parameters_after(value: RankValue) -> Iterator[RankCall]:
    """``parameters()`` calls, among the sources of a value, on modules already sharded (FSDP2)."""
    for thing in value.sources():
        call = thing.call
        if call is None or call.receiver is None or call.method not in _PARAMETERS:
            continue
        if any(t.sharded and t.sharded.order < call.order for t in call.receiver.things):
            yield call


def shards_of(run: Run, value: RankValue, order: int) -> Iterator[RankCall]:
    """The calls that sharded, after that moment, a module that a value was taken from."""
    modules = [value, *_owners(value)]
    things = {thing for thing in value.sources() if thing.kind != "external"}
    for call in run.named(FSDP, FULLY_SHARD):
        module = call.arg(0, "module")
        if call.order > order and module is not None:
            known = not things.isdisjoint(module.things)
            if known or any(_one_symbol(module, other) for other in modules):
                yield call


def _owners(value: RankValue) -> Iterator[RankValue]:
    for thing in value.sources():
        call = thing.call
        if call is not None and call.receiver is not None and call.method in _PARAMETERS:
            yield call.receiver


def _one_symbol(a: RankValue, b: RankValue) -> bool:
    """Whether two values whose making is not known are one and the same."""
    return not a.things and isinstance(a.atoms[0], Symbol) and same(a.atoms[0], b.atoms[0])


def steps(run: Run, optimizer: RankThing, after: int) -> bool:
    """Whether an optimizer is stepped after that moment, by itself or by a scaler."""
    for call in run.methods("step"):
        given = (call.receiver, *call.args)
        if call.order > after and any(v is not None and optimizer in v.things for v in given):
            return True
    return False
