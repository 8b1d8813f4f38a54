"""Whose samples: the loaders a loop goes over, and what one rank's share alone made."""

from __future__ import annotations

from typing import Protocol

from ddpify.facts.details import call_that_made
from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.source import Site


class Sharded(Protocol):
    """A reading in which the loaders of some calls give each rank its share.

    A call in a factory makes several: ``spared`` are the ways to those that every rank goes through
    whole.
    """

    @property
    def sharded(self) -> frozenset[Site]: ...
    @property
    def spared(self) -> frozenset[tuple[Site, ...]]: ...


def is_shared_out(m: Sharded, loader: Thing) -> bool:
    """Whether each rank gets a share of this loader's samples."""
    return loader.born in m.sharded and not (m.spared and way_to(loader) in m.spared)


def way_to(loader: Thing) -> tuple[Site, ...]:
    """The calls that led to a loader, and its own."""
    call = call_that_made(loader)
    return (*call.where.stack, call.site) if call is not None else (loader.born,)


def loaders_in(value: Value, depth: int = 4) -> tuple[Thing, ...]:
    """The loaders a loop goes over, through enumerate, zip, tqdm and iter."""
    found: list[Thing] = list(value.of(Kind.LOADER))
    for thing in value.things if depth else ():
        if thing.kind is Kind.PROGRESS and thing.inner is not None:
            found.extend(loaders_in(thing.inner, depth - 1))
        for over in thing.over:
            found.extend(loaders_in(over, depth - 1))
    return tuple(dict.fromkeys(found))


def is_local(m: Sharded, value: Value) -> bool:
    """Whether a value is computed from this rank's share of the samples only."""
    if value.measure is Measure.UNIFORM:
        return bool(value.dep(Kind.LENGTH))
    return any(is_shared_out(m, loader) for loader in value.loaders())
