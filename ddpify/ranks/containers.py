"""Lists and dicts: their elements, their methods, what changes them in place.

``items`` may stand for more elements than there are (a comprehension has one for all), so nothing
is said of how many there are; an index that is not known gives all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ddpify.ranks.entries import there
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.options import OneOf
from ddpify.ranks.origins import found_under
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result
from ddpify.ranks.values import constant, gathered, key_of, merge, per_rank, spread, symbol

MAX_ITEMS = 8  # of a list that grows; what is put in after these is remembered as its source
ANY: Final = "**"  # the entry under a name that is not known


def entry_name(key: RankValue) -> str | None:
    """The name under which a dict has an entry; None if it is not known."""
    if key.items is not None and not key.things:
        parts = [entry_name(part) for part in key.items]
        return None if None in parts else f"({', '.join(map(str, parts))})"
    known = key.known and key.atoms[0] == key.atoms[1]
    return str(key.atoms[0]) if known and isinstance(key.atoms[0], (str, int, tuple)) else None


def entry(base: RankValue, key: RankValue) -> RankValue | None:
    """``base[key]`` of a dict with known entries; None if it has none under that name."""
    entries = dict(base.keys or ())
    name = entry_name(key)
    if name is not None:
        return entries.get(name, entries.get(ANY))
    asked = key.atoms[0]
    wanted = {*map(str, asked.values), ANY} if isinstance(asked, OneOf) else set(entries)
    held = [value for one, value in entries.items() if one in wanted]
    return merge("entry", (held, held), frozenset()) if held and not key.known else None


def asked_for(base: RankValue, key: RankValue) -> RankValue:
    """A dict of which nothing else is known, as it is asked for one entry."""
    name = key.constant
    if not isinstance(name, str):
        return base
    return replace(base, origins=found_under(name, base.origins))


def of_ranks(base: RankValue, key: RankValue, default: RankValue | None) -> RankValue | None:
    """What each rank finds in a dict under a key of its own, ``{0: "a", 1: "b"}.get(rank)``."""
    if not key.known or key.atoms[0] == key.atoms[1]:
        return None
    entries = dict(base.keys or ())
    held = [(1 << rank, entries.get(str(atom), default)) for rank, atom in enumerate(key.atoms)]
    found = [(ranks, value) for ranks, value in held if value is not None]
    same = ANY in entries or len(found) < len(held)
    return None if same else per_rank(f"pick[{key_of(base)}]", found, key.origins)


def with_entry(base: RankValue, key: RankValue, value: RankValue) -> RankValue:
    """The dict with one more entry."""
    entries = dict(base.keys or ())
    name = entry_name(key)
    if name is None:
        entries = {one: _either(held, key, value) for one, held in entries.items()}
        entries.setdefault(ANY, there(value))
    else:
        entries[name] = there(value)
    return replace(base, keys=tuple(entries.items()))


def with_item_somewhere(base: RankValue, index: RankValue, value: RankValue) -> RankValue:
    """The list with another element in a place that is not known: any may be the one."""
    items = tuple(_either(held, index, value) for held in base.items or ())
    return replace(base, items=items, origins=base.origins | spread(value) | index.origins)


def _either(held: RankValue, place: RankValue, value: RankValue) -> RankValue:
    """An element that is another one now, if its place was meant."""
    found = merge("entry", ([held, value], [held, value]), frozenset())
    return replace(found, origins=found.origins | place.origins)


def elements(value: RankValue) -> tuple[RankValue, ...] | None:
    """What iterating over a value gives, if that is known."""
    if value.items is not None:
        return value.items
    if value.keys is None or any(name == ANY for name, _ in value.keys):
        return None
    return tuple(constant(name) for name, _ in value.keys)


def listed(value: RankValue, items: Sequence[RankValue]) -> RankValue:
    """The value, known to have these elements."""
    return replace(value, items=tuple(items), keys=None)


def any_of(items: Sequence[RankValue]) -> RankValue:
    """One of the elements."""
    return merge("element", (list(items), list(items)), frozenset())


def sliced(items: tuple[RankValue, ...], bounds: Sequence[RankValue]) -> tuple[RankValue, ...]:
    """``items[a:b:c]``; all of them where a bound is not known, or nothing would be left."""
    atoms = [bound.atoms[0] for bound in bounds]
    if not all(atom is None or isinstance(atom, int) for atom in atoms):
        return items
    first, last, step = (*atoms, None, None)[:3] if len(atoms) > 1 else (None, *atoms, None)
    try:
        return items[first:last:step] or items
    except ValueError:  # a step of 0
        return items


def bounds_of(index: RankValue) -> tuple[RankValue, ...] | None:
    """The bounds of ``slice(1, 2)``."""
    made = index.made_by("builtins.slice")
    return made.call.args if made is not None and made.call is not None else None


def without(base: RankValue, index: RankValue, bounds: Sequence[RankValue] | None) -> RankValue:
    """After ``del base[index]`` or ``del base[a:b]``."""
    name = entry_name(index)
    if base.keys is not None and name is not None:
        return replace(base, keys=tuple(pair for pair in base.keys if pair[0] != name))
    if base.items is None:
        return base
    if bounds is not None:
        gone = set(map(id, sliced(base.items, bounds)))
        return replace(base, items=tuple(one for one in base.items if id(one) not in gone))
    at = index.constant
    if not isinstance(at, int) or not -len(base.items) <= at < len(base.items):
        return base
    return replace(base, items=_taken(base.items, at)[1])


# -- methods ---------------------------------------------------------------------------------------


def method(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    """What a method of a list or dict gives, and does to it; None if it is not followed."""
    handler = _METHODS.get(one.method)
    if handler is None or one.star or any(t.kind == "instance" for t in receiver.things):
        return None
    if receiver.items is None and receiver.keys is None:
        if one.method == "get" and one.args and any(o.under for o in receiver.origins):
            return result(replace(one, receiver=asked_for(receiver, one.args[0])))
        return None
    return handler(m, f, one, receiver)


def _changed(m: RankMachine, f: RankFrame, one: RankCall, old: RankValue, new: RankValue) -> None:
    """A list or dict after its own method changed it: made from the arguments, too."""
    deps, origins = gathered((*one.args, *one.kwargs.values()))
    new = replace(new, deps=new.deps | deps, origins=new.origins | origins)
    m.change(f, _receiver_of(one), old, new)


def _taken(items: tuple[RankValue, ...], at: int) -> tuple[RankValue, tuple[RankValue, ...]]:
    """An element, and the others; the only one stays, for it may stand for several."""
    at %= len(items)
    rest = items[:at] + items[at + 1 :]
    return items[at], rest or items


def _pop(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    if receiver.keys is not None:
        return _get(m, f, one, receiver)
    items = receiver.items or ()
    at = 0 if one.method == "popleft" else one.args[0].constant if one.args else -1
    if not items:
        return None
    if m.here.loops or not isinstance(at, int) or not -len(items) <= at < len(items):
        return any_of(items)
    taken, rest = _taken(items, at)
    m.change(f, _receiver_of(one), receiver, replace(receiver, items=rest))
    return taken


def _receiver_of(one: RankCall) -> ast.expr:
    func = one.node.func
    return func.value if isinstance(func, ast.Attribute) else func


def _get(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    if receiver.items and not one.args and not one.kwargs:
        return any_of(receiver.items)  # of a queue
    if not one.args or receiver.keys is None:
        return None
    found = of_ranks(receiver, one.args[0], one.args[1] if len(one.args) > 1 else None)
    found = found or _or_default(one, entry(receiver, one.args[0]))
    if found is not None or len(one.args) < 2 or entry_name(one.args[0]) is None:
        return found
    # in a later round there may be one
    return one.args[1] if one.args[1].things or not m.here.loops else None


def _or_default(one: RankCall, found: RankValue | None) -> RankValue | None:
    """The entry, and what the rank gets whose dict has none."""
    if found is None or found.lacks is None:
        return found
    rank, why = found.lacks
    default = one.args[1] if len(one.args) > 1 else constant(None)
    held = [(2 >> rank, there(found)), (1 << rank, default)]
    return per_rank(f"{one.method}@{one.site}", held, frozenset({why}))


def _extend(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    given = elements(one.args[0]) if len(one.args) == 1 else None
    if receiver.items is None or given is None:
        return None
    left = one.method == "extendleft"
    items = (*reversed(given), *receiver.items) if left else (*receiver.items, *given)
    _changed(m, f, one, receiver, replace(receiver, items=items[:MAX_ITEMS]))
    return constant(None)


def _insert(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    if receiver.items is None or not one.args:
        return None
    at = 0 if one.method == "appendleft" else one.args[0].constant
    items = list(receiver.items)
    items.insert(at if isinstance(at, int) else len(items), one.args[-1])
    _changed(m, f, one, receiver, replace(receiver, items=tuple(items[:MAX_ITEMS])))
    return constant(None)


def _remove(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    items = receiver.items or ()
    wanted = one.args[0] if len(one.args) == 1 else None
    at = next((n for n, item in enumerate(items) if item == wanted), None)
    if at is None or m.here.loops:
        return None
    _changed(m, f, one, receiver, replace(receiver, items=_taken(items, at)[1]))
    return constant(None)


def _reverse(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    if receiver.items is None:
        return None
    _changed(m, f, one, receiver, replace(receiver, items=receiver.items[::-1]))
    return constant(None)


def _copy(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue:
    return replace(receiver)


def _put_in(
    m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue
) -> tuple[tuple[str, RankValue], ...]:
    """An object of the class that a ``defaultdict(Meter)`` makes, which stands for each."""
    made = receiver.made_by("collections.defaultdict")
    given = made.call.args if made is not None and made.call is not None else ()
    if len(given) != 1 or {thing.kind for thing in given[0].things} != {"class"}:
        return ()
    return ((ANY, m.apply(f, given[0], one.node)),)


def _values(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    keys = receiver.keys or _put_in(m, f, one, receiver)
    if not keys:
        return None
    receiver = replace(receiver, keys=keys)
    held = [value for _, value in keys]
    if one.method == "items":
        held = [pair(name, value) for name, value in zip(names(receiver), held, strict=True)]
    return listed(result(one), held)


def names(value: RankValue) -> tuple[RankValue, ...]:
    """The names of a dict's entries; one that is not known is as much the ranks' as the dict is."""
    unknown = replace(symbol(f"name in {key_of(value)}"), origins=value.origins)
    return tuple(unknown if one == ANY else constant(one) for one, _ in value.keys or ())


def pair(*parts: RankValue) -> RankValue:
    """A tuple."""
    return RankValue(symbol("pair").atoms, items=parts)


def _popitem(m: RankMachine, f: RankFrame, one: RankCall, receiver: RankValue) -> RankValue | None:
    if not receiver.keys:
        return None
    name, value = receiver.keys[-1]
    return pair(constant(name), value)


_METHODS: Final[
    dict[str, Callable[[RankMachine, RankFrame, RankCall, RankValue], RankValue | None]]
] = {
    "pop": _pop,
    "popleft": _pop,
    "get": _get,
    "extend": _extend,
    "extendleft": _extend,
    "insert": _insert,
    "appendleft": _insert,
    "remove": _remove,
    "reverse": _reverse,
    "copy": _copy,
    "values": _values,
    "items": _values,
    "popitem": _popitem,
}
