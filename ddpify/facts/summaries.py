"""Summaries: a function that only computes is read once for each kind of arguments.

A dynamic time warping in a data set's augmentation is entered from every loader of every
experiment, thousands of times, and says the same each time. What is not read again is what cannot
say anything new: nothing of the training goes in (settings, constants, arrays from files), nothing
is written to outside of the call, and nothing comes out but arrays again. ::

    def distance(a, b): return np.linalg.norm(a - b)   # one summary, whatever arrays a and b are
    def distance(a, b): log.append(a); ...             # none: it leaves something behind
    def distance(a, b): return net(a) - net(b)         # none: a model is called

What such a call records (a ``print``, a random draw) stands at the same sites, with the same kinds
of values and under the same kinds of conditions, as what its first reading recorded.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from ddpify.facts.accumulators import loaders_in
from ddpify.facts.events import Access, Bind, Call, Forward
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.values import (
    OF_ONE_RANK,
    Kind,
    Measure,
    Thing,
    Value,
)

CONTAINERS = (Kind.TUPLE, Kind.DICT, Kind.ITERATOR)
NAMED = (Kind.EXTERNAL, Kind.CLASS, Kind.MODULE)
SETTINGS = (Kind.ARGUMENT, *OF_ONE_RANK[1:])  # what arguments may be computed from: not the rank
MADE = (Kind.UNKNOWN, Kind.INDEX, Kind.EXTERNAL, *CONTAINERS, *OF_ONE_RANK[1:])
LIBRARIES = ("numpy.", "math.", "scipy.", "os.path.")
# They change what is computed later, or leave something on the disk.
EFFECTS = frozenset("seed set_state seterr set_printoptions save savez savetxt load".split())
BUILTINS = frozenset(
    """print len range enumerate zip min max abs sum int float str bool list tuple dict set sorted
    reversed isinstance round any all pow divmod slice type""".split()
)
METHODS = frozenset(
    """append extend insert copy astype reshape ravel flatten squeeze transpose swapaxes sum mean
    min max std var sort any all argmax argmin argsort cumsum clip round dot fill tolist format join
    split keys values items get""".split()
)
ATTEMPTS = 3  # an import in the body runs a module the first time
DEPTH = 4

Reads = dict[tuple[int, str], tuple[Mapping[str, Value], Hashable]]


class Tracked(Exception):
    """A value that is more than settings and arrays: what it meets has to be read."""


@dataclass(frozen=True)
class Summary:
    """What a function gave, of which given things, and the globals this rests on."""

    result: Value
    given: tuple[tuple[Thing, ...], ...]
    reads: Reads


@dataclass(eq=False)
class Recording:
    """A call that is read for the first time with this kind of arguments."""

    stack: tuple[object, ...]
    reads: Reads = field(default_factory=dict)
    computes: bool = True  # so far, nothing but


class Summaries:
    """The summaries of one reading, and the calls that may become some."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Summary] = {}
        self._open: list[Recording] = []
        self._failed: dict[FunctionInfo, int] = {}

    # -- what a reading tells --------------------------------------------------------------

    def saw(self, event: Call | Bind | Access | Forward) -> None:
        """An event; every call around it does what it does."""
        if self._open and not _is_computation(event):
            self._spoil()

    def made(self, kind: Kind) -> None:
        """A thing is made."""
        if self._open and kind not in MADE:
            self._spoil()

    def looked_up(self, names: Mapping[str, Value], name: str) -> None:
        """A global is read."""
        if not self._open or (id(names), name) in self._open[-1].reads:
            return
        try:
            was = _of_global(names.get(name))
        except Tracked:
            self._spoil()
            return
        for recording in self._open:
            recording.reads.setdefault((id(names), name), (names, was))

    def cut_short(self) -> None:
        """A call is not entered: too deep, or recursive."""
        self._spoil()

    def entered(self, info: FunctionInfo) -> None:
        """A function is entered: what it closes over must be of the calls around it."""
        for recording in self._open:
            around = info.closure.stack if info.closure is not None else None
            if around is not None and around[: len(recording.stack)] != recording.stack:
                recording.computes = False

    def _spoil(self) -> None:
        for recording in self._open:
            recording.computes = False

    # -- summaries -------------------------------------------------------------------------

    def key(
        self, f: Frame | None, info: FunctionInfo, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> Hashable | None:
        """The kind of a call, None when it has to be read."""
        if f is None or info.closure is not None or self._failed.get(info, 0) >= ATTEMPTS:
            return None
        try:
            given = tuple(_kind_of(value) for value in args)
            named = tuple((name, _kind_of(value)) for name, value in kwargs.items())
            defaults = tuple(v and _kind_of(v) for v in (*info.defaults, *info.kw_defaults))
            return (info, given, named, defaults, _circumstances(f))
        except Tracked:
            return None

    def replayed(
        self, key: Hashable, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> Value | None:
        """What a call of this kind gives, None when it was not read yet."""
        summary = self._known.get(key)
        if summary is None or not _hold(summary.reads):
            return None
        for recording in self._open:
            recording.reads.update(summary.reads)
        now = _unknowns((*args, *kwargs.values()))
        return _copied(summary.result, dict(zip(summary.given, now, strict=True)))

    def begin(self, stack: tuple[object, ...]) -> Recording:
        """A call is read that may become a summary."""
        self._open.append(Recording(stack))
        return self._open[-1]

    def end(self, recording: Recording) -> None:
        """That call was read, or its reading broken off."""
        self._open.remove(recording)

    def keep(
        self,
        key: Hashable,
        again: Hashable | None,
        recording: Recording,
        values: tuple[Value, ...],
        info: FunctionInfo,
        result: Value,
    ) -> None:
        """Remember the result; ``again``: the kind of the call after it, the same if it left
        its arguments alone."""
        given = _unknowns(values)
        fits = recording.computes and key == again and _is_data(result, given)
        if not fits or not _hold(recording.reads) or not _leaves_names(info.node):
            self._failed[info] = self._failed.get(info, 0) + 1
            return
        self._known[key] = Summary(_copied(result, {}), given, recording.reads)


def _leaves_names(node: ast.AST) -> bool:
    kinds = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await)
    return not any(isinstance(n, kinds) for n in ast.walk(node))


def _hold(reads: Reads) -> bool:
    """Whether the globals are what they were."""
    try:
        return all(_of_global(names.get(key[1])) == was for key, (names, was) in reads.items())
    except Tracked:
        return False


# ---- Kinds of values
def _kind_of(value: Value, depth: int = DEPTH) -> Hashable:
    """What a function can tell of a value: not which array it is. Raises Tracked."""
    if value.measure is not Measure.UNIFORM or value.rows:
        raise Tracked
    things = frozenset(_kind_of_thing(thing, depth) for thing in value.things)
    const: Hashable = (type(value.const), value.const)
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
    if thing.kind is Kind.FUNCTION and isinstance(thing.ref, FunctionInfo) and not thing.detail:
        if thing.ref.closure is None and thing.receiver is None:
            return thing.ref
    if thing.kind is Kind.ARGUMENT and depth:
        attributes = ((name, _kind_or_self(v, depth - 1)) for name, v in thing.attrs.items())
        return (thing, frozenset(attributes))
    if thing.kind is Kind.INDEX and "row" not in thing.detail:
        return Kind.INDEX
    if _is_array(thing):
        return Kind.UNKNOWN
    raise Tracked


def _kind_or_self(value: Value, depth: int) -> Hashable:
    """A setting may be a device: what a function does with that is seen when it is read."""
    try:
        return _kind_of(value, depth)
    except Tracked:
        return value


def _kind_of_container(thing: Thing, depth: int) -> Hashable:
    items = None if thing.items is None else tuple(_kind_of(v, depth) for v in thing.items)
    keys = None
    if thing.keys is not None:
        keys = tuple((name, _kind_of(v, depth)) for name, v in thing.keys.items())
    inner = None if thing.inner is None else _kind_of(thing.inner, depth)
    over = tuple(_kind_of(v, depth) for v in thing.detail.get("over", ()))
    if set(thing.detail) - {"over"}:
        raise Tracked
    return (thing.kind, thing.name, thing.born, items, keys, inner, over)


def _is_array(thing: Thing) -> bool:
    """An object of a library that nothing is known of, and nothing was done to."""
    bare = not thing.attrs and thing.inner is None and thing.items is None and thing.keys is None
    return thing.kind is Kind.UNKNOWN and bare and "part_of" not in thing.detail


def _of_global(value: Value | None) -> Hashable:
    return None if value is None else _kind_of(value)


def _circumstances(f: Frame) -> Hashable:
    """What decides how often a call happens, as far as rules ask. Raises Tracked."""
    loop = f.loop
    while loop is not None:
        if loop.over.measure is not Measure.UNIFORM or loop.over.rows or loaders_in(loop.over):
            raise Tracked
        loop = loop.parent
    if f.contexts or any(guard.test.measure is not Measure.UNIFORM for guard in f.guards):
        raise Tracked
    things = (t for guard in f.guards for t in guard.test.all_deps())
    return (f.no_grad, frozenset(t.kind for t in things if t.kind in OF_ONE_RANK))


# ---- Things that are given, and what is made of them
def _unknowns(values: Iterable[Value]) -> tuple[tuple[Thing, ...], ...]:
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


def _is_data(result: Value, given: tuple[tuple[Thing, ...], ...]) -> bool:
    """Whether a result is arrays (given or made here) and containers of them, all made here."""
    known = {thing for things in given for thing in things}
    try:
        _kind_of(result)
    except Tracked:
        return False
    return all(_is_result(t) for t in _all_things(result) if t not in known)


def _is_result(thing: Thing) -> bool:
    made = thing.kind is Kind.UNKNOWN and thing.name.startswith(LIBRARIES)
    return made or thing.kind in (Kind.TUPLE, Kind.DICT, Kind.ITERATOR, Kind.INDEX)


def _copied(value: Value, others: Mapping[tuple[Thing, ...], tuple[Thing, ...]]) -> Value:
    """A value with containers of its own, in which other things are given."""
    things: list[Thing] = []
    for thing in value.things:
        container = thing.kind in CONTAINERS
        things += [_copied_container(thing, others)] if container else _instead(thing, others)
    deps = (new for dep in value.deps for new in _instead(dep, others))
    return value.but(things=tuple(dict.fromkeys(things)), deps=frozenset(deps))


def _instead(
    thing: Thing, others: Mapping[tuple[Thing, ...], tuple[Thing, ...]]
) -> Iterable[Thing]:
    """What is given now where a thing was, or the thing."""
    found = [new for old, now in others.items() if thing in old for new in now]
    return [t for t in found if t.kind is thing.kind] or [thing]


def _copied_container(thing: Thing, others: Mapping[tuple[Thing, ...], tuple[Thing, ...]]) -> Thing:
    items, keys = thing.items, thing.keys
    detail = dict(thing.detail)
    if "over" in detail:
        detail["over"] = tuple(_copied(v, others) for v in detail["over"])
    return Thing(
        thing.kind,
        thing.born,
        thing.name,
        items=None if items is None else tuple(_copied(v, others) for v in items),
        keys=None if keys is None else {k: _copied(v, others) for k, v in keys.items()},
        inner=None if thing.inner is None else _copied(thing.inner, others),
        detail=detail,
    )


# ---- Events
def _is_computation(event: Call | Bind | Access | Forward) -> bool:
    """Whether an event says nothing of training, and leaves nothing behind."""
    if isinstance(event, Forward):
        return False
    if isinstance(event, Bind):
        return "." not in event.target
    if isinstance(event, Access):
        return not event.stored and all(_is_plain(t) for t in event.base.things)
    if event.target is not None:
        return True  # its body speaks for itself
    package, _, tail = event.name.rpartition(".")
    if not all(_is_plain(t) for value in _given_to(event) for t in value.things):
        return False
    if not event.name:  # `CubicSpline(steps, warps)(x)`
        made = event.result.things
        return bool(made) and all(t.name.startswith(LIBRARIES) for t in made)
    if not package:
        return event.name.startswith(".") and _is_method(event, tail)
    if package == "builtins":
        return tail in BUILTINS or _is_exception(tail)
    return event.name.startswith(LIBRARIES) and tail not in EFFECTS


def _given_to(call: Call) -> tuple[Value, ...]:
    return (*call.args, *call.kwargs.values())


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, Exception)


def _is_method(call: Call, name: str) -> bool:
    things = call.receiver.things if call.receiver is not None else ()
    return name in METHODS and all(_is_plain(t) for t in things)


def _is_plain(thing: Thing) -> bool:
    kinds = (*CONTAINERS, *NAMED, Kind.FUNCTION, Kind.ARGUMENT, Kind.INDEX)
    return thing.kind in kinds or _is_array(thing)
