"""Kinds of values: what a function that computes can tell of what it is given, and no more.

The kind of an array read from a file is "an array"; that of a setting is the setting, and that of
a model, a loader or a loss is none: where one of these goes, the code has to be read. ::

    distance(x[0], x[1], window=5)   # (an array, an array, the constant 5)
    evaluate(model, loader)          # Tracked
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import chain

from ddpify.facts.details import NumbersRows
from ddpify.facts.locality import loaders_in
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import OF_ONE_RANK, Kind, Measure, Thing, Value

CONTAINERS = (Kind.TUPLE, Kind.DICT, Kind.ITERATOR)
NAMED = (Kind.EXTERNAL, Kind.CLASS, Kind.MODULE)
SETTINGS = (Kind.ARGUMENT, *OF_ONE_RANK[1:])  # what arguments may be computed from: not the rank
LIBRARIES = ("numpy.", "math.", "scipy.", "os.path.", "pandas.", "sklearn.preprocessing.")
DEPTH = 4


# What another call was given or has made, and what this one has instead.
Others = Mapping[Thing, tuple[Thing, ...]]


class Tracked(Exception):
    """A value that is more than settings and arrays: what it meets has to be read."""


# ---- Kinds of values
def kind_of(value: Value, depth: int = DEPTH) -> Hashable:
    """What a function can tell of a value: not which array it is. Raises Tracked."""
    if value.measure is not Measure.UNIFORM or value.rows:
        raise Tracked
    const: Hashable = (type(value.const), value.const, value.setting)
    if not value.things and not value.deps:
        return const
    things = frozenset(_kind_of_thing(thing, depth) for thing in value.things)
    return (things, frozenset(_kind_of_dep(dep) for dep in value.deps), const)


def _kind_of_dep(dep: Thing) -> Hashable:
    if dep.kind is Kind.DATASET:
        return Kind.DATASET
    if dep.kind not in SETTINGS:
        raise Tracked
    return dep if dep.kind is Kind.ARGUMENT else (dep.kind, dep.born)


def _kind_of_thing(thing: Thing, depth: int) -> Hashable:
    if thing.kind in NAMED:
        return (thing.kind, thing.ref or thing.name)
    if thing.kind in CONTAINERS and depth and not thing.attrs:
        return _kind_of_container(thing, depth - 1)
    if _is_function(thing):
        return thing.ref
    if thing.kind is Kind.ARGUMENT:
        return thing  # which of the settings it has count is seen when they are looked up
    if thing.kind is Kind.INDEX and not thing.detail(NumbersRows):
        return Kind.INDEX
    if is_array(thing):
        return Kind.UNKNOWN
    raise Tracked


def _is_function(thing: Thing) -> bool:
    """A function that stands alone: no method, nothing given to it yet, nothing closed over."""
    bare = thing.receiver is None and thing.part_of is None and not thing.details
    return bare and isinstance(thing.ref, FunctionInfo) and thing.ref.closure is None


def of_name(value: Value | None) -> Hashable:
    """What a function can tell of a global or a setting.

    That may be a device: what the function does with it is seen when it is read.
    """
    try:
        return None if value is None else kind_of(value)
    except Tracked:
        return value


def _kind_of_container(thing: Thing, depth: int) -> Hashable:
    items = None if thing.items is None else tuple(kind_of(v, depth) for v in thing.items)
    keys = None
    if thing.keys is not None:
        keys = tuple((name, kind_of(v, depth)) for name, v in thing.keys.items())
    inner = None if thing.inner is None else kind_of(thing.inner, depth)
    over = tuple(kind_of(v, depth) for v in thing.over)
    if thing.details or thing.part_of is not None:
        raise Tracked
    return (thing.kind, thing.name, thing.born, items, keys, inner, over)


def is_array(thing: Thing) -> bool:
    """An object of a library that nothing is known of, and nothing was done to."""
    bare = not thing.attrs and thing.inner is None and thing.items is None and thing.keys is None
    return thing.kind is Kind.UNKNOWN and bare and thing.part_of is None


def circumstances(f: Frame) -> Hashable:
    """What decides how often a call happens, as far as rules ask. Raises Tracked."""
    loop = f.loop
    while loop is not None:
        if loop.over.measure is not Measure.UNIFORM or loop.over.rows or loaders_in(loop.over):
            raise Tracked
        loop = loop.parent
    if any(guard.test.measure is not Measure.UNIFORM for guard in f.guards):
        raise Tracked
    contexts = frozenset(t.name for value in f.contexts for t in value.things)
    things = (t for guard in f.guards for t in guard.test.all_deps())
    return (f.no_grad, contexts, frozenset(t.kind for t in things if t.kind in OF_ONE_RANK))


# ---- Things that are given, and what is made of them
def unknowns(values: Iterable[Value]) -> tuple[tuple[Thing, ...], ...]:
    """The arrays and data sets in each value: another call of the same kind has others."""
    return tuple(
        tuple(t for t in (*_all_things(v), *sorted(v.deps, key=_serial)) if _is_given(t))
        for v in values
    )


def _serial(thing: Thing) -> int:
    return thing.serial


def _is_given(thing: Thing) -> bool:
    return thing.kind in (Kind.UNKNOWN, Kind.INDEX, Kind.DATASET)


def _all_things(value: Value, depth: int = DEPTH) -> list[Thing]:
    found = []
    for thing in value.things:
        found.append(thing)
        if depth and thing.kind in CONTAINERS:
            parts = [*(thing.items or ()), *(thing.keys or {}).values()]
            parts += [thing.inner] if thing.inner is not None else []
            found += [t for part in parts for t in _all_things(part, depth - 1)]
    return list(dict.fromkeys(found))


def is_data(result: Value, given: tuple[tuple[Thing, ...], ...], data: bool = False) -> bool:
    """Whether a result is arrays (given or made here) and containers of them, all made here.

    ``data``: it is held by a data set, where what any library made is samples.
    """
    known = {thing for things in given for thing in things}
    try:
        kind_of(result)
    except Tracked:
        return False
    made = (t for t in _all_things(result) if t not in known)
    return all(_is_result(t) or (data and t.kind is Kind.UNKNOWN) for t in made)


def made_in(values: Iterable[Value], given: tuple[tuple[Thing, ...], ...]) -> tuple[Thing, ...]:
    """The objects of libraries that values hold and that were not given."""
    known = {thing for things in given for thing in things}
    found = (t for value in values for t in _all_things(value) if t.kind is Kind.UNKNOWN)
    return tuple(dict.fromkeys(t for t in found if t not in known))


def again(thing: Thing) -> Thing:
    """An object of a library, as another call makes it."""
    made = Thing(thing.kind, thing.born, thing.name)
    made.details.update(thing.details)
    return made


def _is_result(thing: Thing) -> bool:
    made = thing.kind is Kind.UNKNOWN and thing.name.startswith(LIBRARIES)
    return made or thing.kind in (*CONTAINERS, Kind.INDEX, Kind.ARGUMENT)


def copied(value: Value, others: Others) -> Value:
    """A value with containers of its own, in which other things are given."""
    if not value.things and not value.deps:
        return value
    things: list[Thing] = []
    for thing in value.things:
        container = thing.kind in CONTAINERS
        things += [_copied_container(thing, others)] if container else _instead(thing, others)
    replaced = value.deps & others.keys()
    deps = value.deps - replaced | set(chain.from_iterable(others[dep] for dep in replaced))
    return value.but(things=tuple(dict.fromkeys(things)), deps=deps)


def _instead(thing: Thing, others: Others) -> Iterable[Thing]:
    """The things given now where another was, or that thing."""
    return others.get(thing, (thing,))


def instead(
    old: tuple[tuple[Thing, ...], ...], new: tuple[tuple[Thing, ...], ...]
) -> dict[Thing, tuple[Thing, ...]]:
    """For what was given in each argument, what of its kind is given there now, or itself."""
    found: dict[Thing, dict[Thing, None]] = {}
    for things, now in zip(old, new, strict=True):
        kinds: dict[Kind, dict[Thing, None]] = {}
        for thing in now:
            kinds.setdefault(thing.kind, {})[thing] = None
        for thing in things:
            found.setdefault(thing, {}).update(kinds.get(thing.kind, {}))
    return {thing: tuple(now) or (thing,) for thing, now in found.items()}


def _copied_container(thing: Thing, others: Others) -> Thing:
    items, keys = thing.items, thing.keys
    return Thing(
        thing.kind,
        thing.born,
        thing.name,
        items=None if items is None else tuple(copied(v, others) for v in items),
        keys=None if keys is None else {k: copied(v, others) for k, v in keys.items()},
        inner=None if thing.inner is None else copied(thing.inner, others),
        over=tuple(copied(v, others) for v in thing.over),
        part_of=thing.part_of,
        details=dict(thing.details),
    )
