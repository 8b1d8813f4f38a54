"""Objects of unread classes that are given what samples made, and may tell it again. ::

meter.add(loss.item())
if meter.value() > 2: ...       # each rank's own
"""

from __future__ import annotations

from ddpify.facts.details import OfSamples
from ddpify.facts.values import Kind, Measure, Thing, Value


def keep(receiver: Value | None, given: Value) -> None:
    """Remember that such an object was given something of samples."""
    for thing in _objects(receiver):
        before = thing.detail(OfSamples)
        thing.describe(OfSamples(given.deps | (before.deps if before is not None else set())))


def told_again(receiver: Value | None, value: Value) -> Value:
    """What such an object gives: made of what it was given, in a way that is not followed."""
    kept = [one.deps for thing in _objects(receiver) if (one := thing.detail(OfSamples))]
    return value.but(deps=value.deps.union(*kept), measure=Measure.MIXED) if kept else value


def _objects(receiver: Value | None) -> tuple[Thing, ...]:
    unknown = receiver.of(Kind.UNKNOWN) if receiver is not None else ()
    return tuple(thing for thing in unknown if thing.part_of is None)
