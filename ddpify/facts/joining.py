"""Values that may be one of several, and values computed from others or held by containers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.values import (
    MAX_THINGS,
    NO_CONST,
    NOTHING,
    PERHAPS_ONE,
    UNKNOWN_AXIS,
    ZEROS,
    Kind,
    Measure,
    Thing,
    Value,
    join_measure,
)

ONES = (1, PERHAPS_ONE)
OF_ENTRIES = (Measure.SAMPLES, Measure.PICKED)


def is_zero(value: Value) -> bool:
    """Whether a sum may begin with it: 0, or an array of zeros."""
    return value.const is ZEROS or (value.known and bool(value.const == 0))


def join(*values: Value | None) -> Value:
    """The value that is any one of these (None: not bound on that path)."""
    result = None
    for value in values:
        if result is None:
            result = value
        elif value is not None and value is not result:
            result = _join2(result, value)
    return NOTHING if result is None else result


def _join2(a: Value, b: Value) -> Value:
    """The value that is either; ``a`` itself where ``b`` adds nothing, the usual case by far."""
    things, deps = a.things, a.deps
    if b.things and b.things != things:
        things = tuple(dict.fromkeys(things + b.things))[:MAX_THINGS]
    if not b.deps <= deps:
        deps = deps | b.deps
    same = things == a.things and deps is a.deps and a.measure is b.measure
    same = same and a.rows == b.rows and a.blocks == b.blocks
    setting = a.setting or b.setting
    axis = _axis((a, b))
    axes = _either(a, b)
    same = same and a.setting is setting and a.axis == axis and a.axes == axes
    if same and things == b.things and deps == b.deps and a.const == b.const:
        return a
    tallies = things and bool(a.of(Kind.TALLY)) is not bool(b.of(Kind.TALLY))
    if tallies:  # a count, or something else
        both = (*a.things, *b.things)
        deps = deps | {t for t in both if t.kind is Kind.TALLY}
    const = a.const if _same_const(a, b) else NO_CONST
    if same and deps is a.deps and const is a.const:
        return a
    measure = join_measure(a.measure, b.measure)
    blocks = a.blocks if a.blocks == b.blocks else 0
    rows = a.rows and b.rows
    return Value(things, deps, measure, const, rows, axis, blocks, axes, setting)


def _same_const(a: Value, b: Value) -> bool:
    return a.known and b.known and type(a.const) is type(b.const) and bool(a.const == b.const)


def computed(*values: Value, measure: Measure | None = None) -> Value:
    """The result of an operation that is not followed: only what it came from is kept.

    Containers are looked into, so that `f((loss, x))` still depends on the batch.
    """
    deps: set[Thing] = set()
    measures = []
    for value in values:
        deps |= flat_deps(value)
        measures.append(flat_measure(value))
    if measure is None:
        measure = _mixed(measures)
    return Value((), frozenset(deps), measure, axis=_axis(values), axes=axes_of(values))


def told(value: Value) -> Value:
    """What a text of a value is made of: of an object that keeps numbers of samples, of these."""
    if not value.things:
        return value
    kept = [part for thing in held(value, Kind.INSTANCE) for part in thing.attrs.values()]
    numbers = [part for part in kept if flat_measure(part) is not Measure.UNIFORM]
    return computed(value, *numbers, measure=Measure.MIXED) if numbers else value


def _axis(values: Iterable[Value]) -> int:
    """Which axis holds the samples of what is made of these, entry by entry."""
    found = {v.axis for v in values if v.axis or v.measure is not Measure.UNIFORM}
    return found.pop() if len(found) == 1 else UNKNOWN_AXIS if found else 0


def _either(a: Value, b: Value) -> int:
    """How many axes a value has that is one or the other."""
    if a.axes == b.axes or b.measure is Measure.UNIFORM:
        return a.axes
    if a.measure is Measure.UNIFORM:
        return b.axes
    return 0 if a.axes not in ONES and b.axes not in ONES else PERHAPS_ONE


def axes_of(values: Iterable[Value]) -> int:
    """How many axes something has that is made of these, entry by entry."""
    found = {v.axes for v in values if v.axes or v.measure in OF_ENTRIES}
    most = max(found, default=0)
    return most if most > 1 or len(found) < 2 else 1 if found == {0, 1} else PERHAPS_ONE


def _mixed(measures: list[Measure]) -> Measure:
    local = {m for m in measures if m is not Measure.UNIFORM}
    if not local:
        return Measure.UNIFORM
    return Measure.ENTRY if local == {Measure.ENTRY} else Measure.MIXED


_DATA = frozenset(
    {
        Kind.MODEL,
        Kind.WRAPPED,
        Kind.PARAMETERS,
        Kind.OPTIMIZER,
        Kind.SCHEDULER,
        Kind.DATASET,
        Kind.LOADER,
        Kind.BATCH,
        Kind.FORWARD,
        Kind.GRAPH,
        Kind.STATE,
        Kind.CHECKPOINT,
        Kind.ARGUMENT,
        Kind.RANK,
        Kind.CLOCK,
        Kind.RANDOM,
        Kind.FILES,
        Kind.FILE,
        Kind.TRACKER,
        Kind.DEVICE,
        Kind.CRITERION,
        Kind.SCALER,
        Kind.PROGRESS,
        Kind.WORLD,
        Kind.RATIO,
        Kind.UNREAD,
        Kind.COUPLED,
        Kind.AVERAGED,
    }
)


def flat_deps(value: Value, depth: int = 4) -> frozenset[Thing]:
    """The data things a value is, holds or came from."""
    if not value.things and not value.deps:
        return frozenset()
    found = {t for t in value.deps if t.kind in _DATA}
    for thing in value.things:
        if thing.kind in _DATA:
            found.add(thing)
        if depth and thing.kind in (Kind.TUPLE, Kind.DICT, Kind.ITERATOR):
            for part in parts_of(thing):
                found |= flat_deps(part, depth - 1)
    return frozenset(found)


def flat_measure(value: Value, depth: int = 4) -> Measure:
    """The measure of a value or, for a container, of what it holds."""
    if value.measure is not Measure.UNIFORM or not depth or not value.things:
        return value.measure
    held = (t for t in value.things if t.kind in (Kind.TUPLE, Kind.DICT, Kind.ITERATOR))
    return _mixed([flat_measure(part, depth - 1) for t in held for part in parts_of(t)])


def held(value: Value, kind: Kind, depth: int = 3) -> list[Thing]:
    """The things of a kind that a value is or, for a container, holds."""
    found = []
    for thing in value.things:
        if thing.kind is kind:
            found.append(thing)
        elif depth and thing.kind in (Kind.TUPLE, Kind.DICT, Kind.ITERATOR):
            found += [t for part in parts_of(thing) for t in held(part, kind, depth - 1)]
    return found


def parts_of(thing: Thing) -> tuple[Value, ...]:
    """The values a container thing holds."""
    parts = tuple(thing.items or ()) + tuple((thing.keys or {}).values())
    return parts + ((thing.inner,) if thing.inner is not None else ())


def with_parts(value: Value, depth: int = 4) -> Iterator[Value]:
    """A value and, of a container, what it holds, containers in it included."""
    yield value
    for part in (part for thing in value.things if depth for part in parts_of(thing)):
        yield from with_parts(part, depth - 1)


def listed(value: Value) -> Measure | None:
    """The measure of the numbers of a list, one for each batch; None where it holds others.

    Each rank has as many: a loop over shares that are not alike must leave no list of numbers.
    """
    if value.rows or not value.things or value.of(Kind.TUPLE, Kind.ITERATOR) != value.things:
        return None
    entries = {part.measure for thing in value.things for part in parts_of(thing)}
    single = entries.pop() if len(entries) == 1 else None
    return single if single in (Measure.SUM, Measure.MEAN) else None
