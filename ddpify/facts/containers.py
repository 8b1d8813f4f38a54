"""Lists, tuples and dicts: what they hold, and how that changes.

``items`` are elements at known places; ``inner`` is what may stand anywhere besides.
``xs = [a]; if c: xs.append(b)`` leaves ``items == (a,)`` and ``inner == b``.
"""

from __future__ import annotations

import ast
from typing import Final

from ddpify.facts import torchtext
from ddpify.facts.details import Collated, FirstEntry, part_of
from ddpify.facts.joining import flat_deps, is_zero, join, parts_of
from ddpify.facts.rows import OUTPUTS, SEVERAL
from ddpify.facts.scopes import Frame
from ddpify.facts.values import (
    MORE,
    NOTHING,
    UNKNOWN_AXIS,
    Kind,
    Thing,
    Value,
    constant,
    one,
)
from ddpify.source import Site

LISTS: Final = (Kind.TUPLE, Kind.ITERATOR)
MOST_COPIES = 8
GROWS = frozenset("append extend add insert update setdefault appendleft extendleft put".split())
SETS = frozenset({"builtins.set", "builtins.frozenset"})
COPIES = frozenset("copy union difference intersection symmetric_difference".split())
TAKES = frozenset({"pop", "popleft", "get", "get_nowait"})


def set_name(node: ast.expr) -> str:
    """The name of what a display or comprehension makes, where that is a set."""
    return "builtins.set" if isinstance(node, (ast.Set, ast.SetComp)) else ""


def comprehended(site: Site, node: ast.expr, element: Value) -> Value:
    """What a comprehension of these elements makes."""
    made = Thing(Kind.ITERATOR, site, set_name(node), inner=element)
    return Value((made,), flat_deps(element))


def set_of(values: tuple[Value, ...], site: Site) -> Value:
    """A set of what these hold, or some of it."""
    held = [v for each in values for t in each.things for v in (*(t.items or ()), t.inner) if v]
    deps = frozenset(dep for value in values for dep in value.deps)
    made = Thing(Kind.ITERATOR, site, "builtins.set", inner=join(*held))
    return Value((made,), deps)


def copied(thing: Thing, name: str, args: tuple[Value, ...], site: Site) -> Value | None:
    """``xs.copy()``, and what is a set of some of a set and others."""
    if name == "copy":
        return one(Thing(thing.kind, site, thing.name, items=thing.items, inner=thing.inner))
    return set_of((one(thing), *args), site) if thing.name in SETS else None


def certain(f: Frame) -> bool:
    """Whether what happens here happens once, whatever is decided."""
    return not f.guards and f.loop is None


def item_of(thing: Thing, index: Value) -> Value | None:
    """An element of a container thing, None when it is not one."""
    if thing.keys is not None and index.known:
        return thing.keys.get(index.const, thing.keys.get(0, NOTHING))
    if thing.items is not None:
        return _at(thing.items, thing.inner, index)
    if thing.keys is not None:
        return join(*thing.keys.values())
    if thing.kind is Kind.BATCH:
        return part_of(thing, collated_axis(thing, index))
    if thing.kind is Kind.CHECKPOINT:
        return Value((), frozenset({thing}))
    if thing.kind is Kind.ITERATOR and thing.inner is not None:
        first = thing.detail(FirstEntry)
        return first.value if first is not None and index.const == 0 else thing.inner
    if thing.name == SEVERAL:
        return thing.inner
    split = torchtext.one_of_several(thing)
    return one(split) if split is not None else None


def collated_axis(batch: Thing, index: Value) -> int:
    """Along which axis the samples lie in a part of a batch, as all of its loaders put it."""
    told = [t.detail(Collated) for t in batch.stands_for]
    found = {_entry(one.axes, index) if one is not None else 0 for one in told}
    return found.pop() if len(found) == 1 else UNKNOWN_AXIS if found else 0


def _entry(axes: tuple[int, ...], index: Value) -> int:
    if isinstance(index.const, int) and -len(axes) <= index.const < len(axes):
        return axes[index.const]
    return UNKNOWN_AXIS if any(axes) else 0


def _slot(key: object) -> object:
    return key if isinstance(key, (str, int, float, bytes, tuple)) else 0


def _at(items: tuple[Value, ...], inner: Value | None, index: Value) -> Value:
    place = index.const if index.known and isinstance(index.const, int) else None
    if place is None or not -len(items) <= place < len(items):
        return join(*items, inner)
    return join(items[place], inner)


def sliced(thing: Thing, start: int, end: int | None, site: Site, step: int = 1) -> Value:
    """``xs[start:end]`` of a list or tuple."""
    if thing.items is None or thing.inner is not None:
        return one(Thing(Kind.ITERATOR, site, inner=everything(thing)))
    return one(Thing(Kind.TUPLE, site, items=thing.items[start:end:step]))


def slice_of(thing: Thing, bounds: list[Value | None], site: Site) -> Value:
    """``xs[a:b:c]``; where a bound is not known, any elements."""
    if thing.items is None or any(b is not None and not b.known for b in bounds):
        name = thing.name if thing.name == OUTPUTS else ""
        part = Thing(Kind.ITERATOR, site, name, inner=everything(thing))
        first = thing.detail(FirstEntry)
        if first is not None and (bounds[0] is None or is_zero(bounds[0])):
            part.describe(first)  # `x.size()[:2]`
        return one(part)
    found = [b.const if b is not None else None for b in bounds]
    if thing.inner is not None or not all(b is None or isinstance(b, int) for b in found):
        return one(Thing(Kind.ITERATOR, site, inner=everything(thing)))
    if found[2] == 0:
        return NOTHING
    return one(Thing(Kind.TUPLE, site, items=thing.items[slice(*found)]))


def everything(thing: Thing) -> Value:
    """What any element of a container may be."""
    return join(*parts_of(thing))


def grow(f: Frame, thing: Thing, name: str, args: tuple[Value, ...], value: Value) -> None:
    """``xs.append(x)`` and its kin; ``value`` is what one new element may be."""
    fixed = thing.items is not None and thing.inner is None and certain(f)
    more = _added(name, args, value)
    if not fixed or more is None or thing.items is None:
        if name not in ("append", "extend", "add", "put"):
            blur(thing)
        thing.inner = join(thing.inner, value)
    elif name in ("appendleft", "insert"):
        at = args[0].const if name == "insert" else 0
        thing.items = (*thing.items[:at], *more, *thing.items[at:])
    else:
        thing.items = (*thing.items, *more)


def _added(name: str, args: tuple[Value, ...], value: Value) -> tuple[Value, ...] | None:
    """The new elements one by one, None when they are not known so."""
    if name in ("append", "appendleft", "put"):
        return (value,)
    if name == "insert":
        return (value,) if args and args[0].known and isinstance(args[0].const, int) else None
    if name == "extend" and args and len(args[0].things) == 1:
        given = args[0].things[0]
        return given.items if given.inner is None else None
    return None


def take(f: Frame, thing: Thing, name: str, args: tuple[Value, ...]) -> Value:
    """``xs.pop(i)``: the element, which is gone then."""
    place = args[0] if args and name == "pop" else constant(-1 if name == "pop" else 0)
    items = thing.items
    given = item_of(thing, place) or everything(thing)
    remove(f, thing, place)
    return given if items or thing.inner is not None else NOTHING


def remove(f: Frame, thing: Thing, place: Value) -> None:
    """``del xs[i]``."""
    items = thing.items
    if items is None:
        return
    at = place.const if place.known and isinstance(place.const, int) else None
    if certain(f) and thing.inner is None and at is not None and -len(items) <= at < len(items):
        at %= len(items)
        thing.items = (*items[:at], *items[at + 1 :])
    else:
        blur(thing)


def blur(thing: Thing) -> None:
    """The elements may stand at other places from here on."""
    if thing.items:
        thing.inner = join(*thing.items, thing.inner)
        thing.items = ()


def replace_item(f: Frame, thing: Thing, index: Value, value: Value) -> None:
    """``xs[i] = x``."""
    items = thing.items
    at = index.const if index.known and isinstance(index.const, int) else None
    if not items or thing.inner is not None or at is None or not -len(items) <= at < len(items):
        thing.inner = join(thing.inner, value)
        return
    at %= len(items)
    new = value if certain(f) else join(items[at], value)
    thing.items = (*items[:at], new, *items[at + 1 :])


def repeated(thing: Thing, times: Value, site: Site) -> Value | None:
    """``[x] * 2``; None of what is no list of a few known elements."""
    if thing.items is None:
        return None
    if times.known and isinstance(times.const, int) and 0 <= times.const <= MOST_COPIES:
        copies = thing.items * times.const
        return one(Thing(Kind.TUPLE, site, items=copies, inner=thing.inner))
    return one(Thing(Kind.ITERATOR, site, inner=everything(thing)))


def concatenated(left: Value, right: Value, site: Site, f: Frame) -> Value | None:
    """``xs + ys`` with every element in its place, None when these are not known."""
    found = [_written(value) for value in (left, right)]
    if f.loop is not None or None in found:
        return None
    return one(Thing(Kind.TUPLE, site, items=tuple(i for items in found for i in items or ())))


def _written(value: Value) -> tuple[Value, ...] | None:
    thing = value.things[0] if len(value.things) == 1 else None
    return thing.items if thing is not None and thing.inner is None else None


def display(parts: list[tuple[Value, bool]], site: Site) -> Value:
    """``[a, *b]``: the parts, and which of them are spread."""
    found: list[Value] = []
    for value, spread in parts:
        items = _written(value) if spread else (value,)
        if items is None:
            inner = join(*(everything(t) for v, s in parts if s for t in v.things), *found)
            rest = [v for v, s in parts if not s]
            whole = Thing(Kind.ITERATOR, site, inner=join(inner, *rest))
            if found:
                whole.describe(FirstEntry(found[0]))
            return one(whole)
        found.extend(items)
    return one(Thing(Kind.TUPLE, site, items=tuple(found)))


def merged(left: Value, right: Value, site: Site) -> Value | None:
    """``d | e`` of two dicts; ``s | t`` and ``s - t`` of sets."""
    if left.things and all(t.name in SETS for t in left.things):
        return set_of((left, right), site)
    if not left.of(Kind.DICT) or not right.of(Kind.DICT):
        return None
    keys: dict[object, Value] = {}
    for thing in (*left.of(Kind.DICT), *right.of(Kind.DICT)):
        keys.update(thing.keys or {})
    return one(Thing(Kind.DICT, site, keys=keys))


def dict_of(given: Value | None, kwargs: dict[str, Value], site: Site) -> Value:
    """``dict(given, **kwargs)``: of a dict, or of pairs."""
    keys: dict[object, Value] = {}
    for thing in given.things if given is not None else ():
        keys.update(thing.keys or {})
        if thing.kind is Kind.PARAMETERS:  # `dict(model.named_parameters())`
            keys[0] = join(keys.get(0), Value((), frozenset({thing})))
        for pair in (*(thing.items or ()), *((thing.inner,) if thing.inner else ())):
            for two in pair.things:
                name, value = item_of(two, constant(0)), item_of(two, constant(1))
                if name is not None and value is not None:
                    slot = _slot(name.const) if name.known else 0
                    keys[slot] = join(keys.get(slot), value)
    if given is not None and not given.things:
        keys[0] = given
    keys.update(kwargs)
    return one(Thing(Kind.DICT, site, keys=keys))


def update(keys: dict[object, Value], args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
    """``entries.update(others, loss=0)``; of what is not followed, under any key."""
    for given in args:
        if not given.things:
            keys[0] = join(keys.get(0), given)
        for other in given.things:
            for key, value in (other.keys or {}).items():
                keys[key] = join(keys.get(key), value)
    for word, value in kwargs.items():
        keys[0 if word == MORE else word] = value


def joined_text(left: Value, right: Value) -> Value | None:
    """``"train" + "_loader"``."""
    if isinstance(left.const, str) and isinstance(right.const, str):
        return constant(left.const + right.const)
    return None


def bounds_of(node: ast.Slice) -> list[ast.expr | None]:
    """The three expressions of a slice."""
    return [node.lower, node.upper, node.step]
