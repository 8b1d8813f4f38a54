"""Whose samples: the loaders a loop goes over, and what one rank's share alone made."""

from __future__ import annotations

from typing import Protocol

from ddpify.facts.values import Kind, Measure, Thing, Value
from ddpify.source import Site


class Sharded(Protocol):
    """A reading in which the loaders of some calls give each rank its share."""

    @property
    def sharded(self) -> frozenset[Site]: ...


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
        return False
    for batch in value.dep(Kind.BATCH):
        if batch.inner is not None and any(t.born in m.sharded for t in batch.inner.things):
            return True
    return False
