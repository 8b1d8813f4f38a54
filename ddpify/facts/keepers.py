"""Objects of unread classes that are given what samples made, and may tell it again. ::

meter.add(loss.item())
if meter.value() > 2: ...       # each rank's own
"""

from __future__ import annotations

from ddpify.facts.details import OfSamples
from ddpify.facts.joining import computed, flat_measure
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


def in_words(value: Value) -> Value:
    """``str(meter)``: of the numbers that an object of the project keeps, whichever it tells."""
    objects = value.of(Kind.INSTANCE) if value.measure is Measure.UNIFORM else ()
    kept = [number for thing in objects for number in thing.attrs.values()]
    numbers = [n for n in kept if flat_measure(n) not in (Measure.UNIFORM, Measure.SAMPLES)]
    return computed(*numbers, measure=Measure.MIXED) if numbers else value


def _objects(receiver: Value | None) -> tuple[Thing, ...]:
    unknown = receiver.of(Kind.UNKNOWN) if receiver is not None else ()
    return tuple(thing for thing in unknown if thing.part_of is None)
