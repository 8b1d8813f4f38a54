"""What iterating over a value yields: batches of loaders, elements of containers."""

from __future__ import annotations

from ddpify.facts import batch_objects, torchtext
from ddpify.facts.details import measure_of, part_of
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_deps, join
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import SEVERAL, may_be_list
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value, one

DEEP = 8  # iterators of iterators: two may give each other without end


def element_of(m: Machine, f: Frame, value: Value, depth: int = 0) -> Value:
    """What iterating over a value yields."""
    found = [_element(m, f, thing, depth) for thing in value.things] if depth < DEEP else []
    results = [v for v in found if v is not None]
    if results:
        return join(*results)
    if value.measure is Measure.UNIFORM:
        return Value((), flat_deps(value))
    if may_be_list(value):
        return computed(value, measure=Measure.MIXED)
    entry = value.measure in (Measure.SAMPLES, Measure.PICKED)
    return computed(value, measure=Measure.ENTRY if entry else None)


def _element(m: Machine, f: Frame, thing: Thing, depth: int) -> Value | None:
    if thing.kind is Kind.LOADER:
        batch_objects.read(m, f, thing, f.statement or thing.born)
        batch = m.make(Kind.BATCH, f, f.statement or thing.born, f"{thing.serial}")
        batch.inner = one(thing)
        return Value((batch,), frozenset(), measure_of(batch))
    if thing.kind is Kind.PROGRESS:
        if thing.inner is None or not thing.inner.all_deps():
            return NOTHING
        return element_of(m, f, thing.inner, depth + 1)
    if thing.kind is Kind.BATCH:
        return part_of(thing)
    if thing.items is not None or thing.kind is Kind.ITERATOR or thing.kind is Kind.TUPLE:
        return join(*(thing.items or ()), thing.inner)
    if thing.keys is not None:
        return NOTHING
    if isinstance(thing.ref, ClassInfo):
        return _instance_element(m, thing, f, depth)
    return _other_element(m, f, thing)


def _other_element(m: Machine, f: Frame, thing: Thing) -> Value | None:
    if thing.kind is Kind.PARAMETERS:
        return Value((), frozenset({thing}))
    if thing.name == SEVERAL:
        return thing.inner
    if torchtext.makes_batches(thing):
        made = m.make(Kind.UNKNOWN, f, f.statement or thing.born, torchtext.BATCH)
        made.inner = one(thing)
        return one(made)
    return None


def _instance_element(m: Machine, thing: Thing, f: Frame, depth: int) -> Value | None:
    assert isinstance(thing.ref, ClassInfo)
    method = thing.ref.lookup("__iter__")
    if method is None:
        return _next_of(m, thing, f)
    for bound in m.bind_method(thing, method, f.statement or thing.born).things:
        if isinstance(bound.ref, FunctionInfo) and bound.receiver is not None:
            made = m.enter(f, bound.ref, (one(thing),), {}, f.statement or thing.born)
            if thing in made.things:  # it is its own iterator
                return _next_of(m, thing, f)
            return element_of(m, f, made, depth + 1)
    return None


def _next_of(m: Machine, thing: Thing, f: Frame) -> Value | None:
    """What ``__next__`` of an object gives, None when its class has none."""
    assert isinstance(thing.ref, ClassInfo)
    method = thing.ref.lookup("__next__")
    for bound in method.things if method is not None else ():
        if isinstance(bound.ref, FunctionInfo):
            return m.enter(f, bound.ref, (one(thing),), {}, f.statement or thing.born)
    return None


def iterates(m: Machine, f: Frame, call: Call, element: Value) -> Value:
    thing = m.make(Kind.ITERATOR, f, call.site, call.name)
    thing.inner = element
    thing.over = call.args
    return one(thing)
