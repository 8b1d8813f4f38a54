"""Making and combining values: per-rank constants, where they come from, joins after branches."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ddpify.ranks import sizes
from ddpify.ranks.model import ALL, DATA, RANK0, RANK1, Origin, Symbol, Thing, Value

MAX_DEPS = 80


class Made(Symbol):
    """An object: not None, and true unless something else is known."""


class Maybe(Symbol):
    """None or an object: which of both is the same on all ranks."""


class Absent(Symbol):
    """What a rank has in place of a list's element that other ranks alone put in."""


NONE = Value((None, None))
TRUE = Value((True, True))
FALSE = Value((False, False))


def constant(value: Any) -> Value:
    """The same constant on both ranks."""
    return Value((value, value))


def symbol(key: str, *parts: Value) -> Value:
    """An unknown value, computed from others."""
    one = Symbol(key)
    return Value((one, one), (), *gathered(parts))


def of(thing: Thing, *parts: Value) -> Value:
    """A value that is this thing, computed from others."""
    one = Made(f"{thing.name}@{id(thing)}")
    return Value((one, one), (thing,), *gathered(parts))


def gathered(parts: Iterable[Value]) -> tuple[frozenset[Thing], frozenset[Origin]]:
    """What a value is made from that is computed from these, and why it may differ."""
    deps: set[Thing] = set()
    origins: set[Origin] = set()
    for part in parts:
        deps.update(part.things)
        deps |= part.made_from
        origins |= part.all_origins
    if len(deps) > MAX_DEPS:
        deps = set(sorted(deps, key=_weight)[:MAX_DEPS])
    return frozenset(deps), frozenset(origins)


def _weight(thing: Thing) -> bool:
    """Things that rules ask for come first."""
    return not thing.name.startswith(("torch.utils.data", "torch.nn.parallel", "torch.distributed"))


def spread(value: Value) -> frozenset[Origin]:
    """The origins of a value and of its elements."""
    return value.all_origins


def same(a: Any, b: Any) -> bool:
    """Whether two atoms are surely equal."""
    if isinstance(a, Symbol) or isinstance(b, Symbol):
        return isinstance(a, Symbol) and isinstance(b, Symbol) and a.key == b.key
    return type(a) is type(b) and bool(a == b)


def differs(value: Value) -> bool:
    """Whether the two ranks are known to have different atoms."""
    return not same(*value.atoms)


def truth(atom: Any) -> bool | None:
    """Whether an atom is true; None if unknown."""
    if isinstance(atom, Made):
        return True
    if isinstance(atom, Symbol):
        return None
    try:
        return bool(atom)
    except Exception:  # a constant of the user's is only looked at
        return None


def merge(
    key: str,
    sources: tuple[list[Value], list[Value]],
    why: frozenset[Origin],
    always: bool = False,
) -> Value:
    """One value from those that rank 0 and rank 1 may have; ``why`` they may differ, if so.

    ``always``: each rank chooses among them for itself.
    """
    flat = list(dict.fromkeys((*sources[0], *sources[1])))
    if len(flat) == 1:
        return flat[0]
    apart = bool(why) and (always or not all(set(values) == set(flat) for values in sources))
    atoms = tuple(_joined(key, values, rank, apart) for rank, values in enumerate(sources))
    things = tuple(dict.fromkeys(thing for value in flat for thing in value.things))
    deps = frozenset().union(*(value.deps for value in flat))
    origins = frozenset().union(*(value.origins for value in flat))
    if apart:
        origins |= why
    alike = all(v.items == flat[0].items for v in flat)
    items = flat[0].items if alike else _items(key, sources, why, always)
    alike = all(v.keys == flat[0].keys for v in flat)
    keys = flat[0].keys if alike else _keys(key, sources, why, always)
    return Value(
        (atoms[0], atoms[1]), things, deps, origins, items, keys, split_by_rank(things, sources)
    )


def split_by_rank(
    things: tuple[Thing, ...], sources: tuple[list[Value], list[Value]]
) -> tuple[tuple[Thing, int], ...]:
    """The things that only one rank's values may be."""
    first, second = sources
    alike = len(first) == len(second) and all(map(operator.is_, first, second))
    if alike and not any(value.apart for value in first):
        return ()
    found = []
    for thing in things:
        ranks = 0
        for rank, values in enumerate(sources):
            if any(thing in v.things and v.ranks_of(thing) & (1 << rank) for v in values):
                ranks |= 1 << rank
        if ranks in (RANK0, RANK1):
            found.append((thing, ranks))
    return tuple(found)


def per_rank(
    key: str, held: list[tuple[int, Value]], why: frozenset[Origin], always: bool = False
) -> Value:
    """One value from some that only these ranks have; what a rank without one has is not asked."""
    sources: tuple[list[Value], list[Value]] = ([], [])
    for ranks, value in held:
        for rank in (0, 1):
            if ranks & (1 << rank):
                sources[rank].append(value)
    for rank in (0, 1):
        if not sources[rank]:
            sources[rank].extend(sources[1 - rank] or [symbol("nowhere")])
    return merge(key, sources, why, always)


def _items(
    key: str, sources: tuple[list[Value], list[Value]], why: frozenset[Origin], always: bool
) -> tuple[Value, ...] | None:
    """Elements of tuples of one length are merged one by one; of others the longest stands."""
    held = [[v.items for v in values if v.items is not None] for values in sources]
    both = [*held[0], *held[1]]
    if len({len(items) for items in both}) != 1:
        return _uneven(sources, why) or max(both, key=len, default=None)
    if not all(sources) or len(both) != len(sources[0]) + len(sources[1]):
        held, why, always = [both, both], frozenset(), False  # some are no tuples
    columns = zip(zip(*held[0], strict=True), zip(*held[1], strict=True), strict=True)
    return tuple(
        merge(f"{key}[{number}]", (list(one), list(other)), why, always)
        for number, (one, other) in enumerate(columns)
    )


def _uneven(
    sources: tuple[list[Value], list[Value]], why: frozenset[Origin]
) -> tuple[Value, ...] | None:
    """Lists that the ranks have filled differently: what both begin with, then what each has."""
    if len(sources[0]) != 1 or len(sources[1]) != 1 or not why:
        return None
    here, there = sources[0][0].items or (), sources[1][0].items or ()
    pairs = zip(here, there, strict=False)
    common = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(here), len(there)))
    rest = (here[common:], there[common:])
    if not all(item.things for part in rest for item in part):
        return None  # no objects: nothing that a loop would call
    own = (only_on(item, rank, why) for rank in (0, 1) for item in rest[rank])
    return (*here[:common], *own)


def only_on(item: Value, rank: int, why: frozenset[Origin]) -> Value:
    """An element that one rank alone has."""
    none = Absent("absent")
    atoms = (none, item.atoms[1]) if rank else (item.atoms[0], none)
    return replace(item, atoms=atoms, origins=item.origins | why)


def holders(item: Value) -> int:
    """The ranks whose list has this element."""
    return sum(1 << rank for rank in (0, 1) if not isinstance(item.atoms[rank], Absent))


def _keys(
    key: str, sources: tuple[list[Value], list[Value]], why: frozenset[Origin], always: bool
) -> tuple[tuple[str, Value], ...] | None:
    """Entries are merged one by one; a list that is not there yet is an empty one."""
    held = [[dict(v.keys) for v in values if v.keys is not None] for values in sources]
    if not all(held):
        held, why, always = [[*held[0], *held[1]]] * 2, frozenset(), False
    names = dict.fromkeys(name for entries in held for one in entries for name in one)
    made = []
    for name in names:
        found = [[one[name] for one in entries if name in one] for entries in held]
        given = found[0] or found[1]
        empty = Value(symbol(f"list@{key}").atoms, items=()) if given[0].items else given[0]
        columns = (found[0] or [empty], found[1] or [empty])
        made.append((name, merge(f"{key}[{name}]", columns, why, always)))
    return tuple(made) or None


def _joined(key: str, values: list[Value], rank: int, apart: bool) -> Any:
    """The atom of one rank. A value that differs between ranks is that of the distributed world."""
    if not values:
        return None
    by_rank = [value for value in values if differs(value) and value.known]
    atoms = [value.atoms[rank] for value in (by_rank or values)]
    first = atoms[0]
    if all(same(first, other) for other in atoms):
        return first
    if all(truth(atom) is True for atom in atoms):
        return Made(key)
    return Symbol(key) if apart or not _is_optional(atoms) else Maybe(key)


def _is_optional(atoms: list[Any]) -> bool:
    """Whether these are None or objects, not numbers or conditions."""
    objects = [a for a in atoms if isinstance(a, Symbol) and not a.parts]
    absent = any(a is None or isinstance(a, Maybe) for a in atoms)
    return absent and all(a is None or a in objects for a in atoms)


def asks_presence(test: Value) -> bool:
    """Whether a condition tells no more than if there is an object: the same on all ranks."""
    return all(isinstance(_asked(atom), Maybe) for atom in test.atoms)


def _asked(atom: Any) -> Any:
    """``x`` of ``not x``."""
    negated = isinstance(atom, Symbol) and atom.parts[:1] == ("Not",)
    return atom.parts[1] if negated else atom


def agreed(value: Value) -> Value:
    """The same on all ranks, elements included."""
    items = None if value.items is None else tuple(map(agreed, value.items))
    keys = None if value.keys is None else tuple((name, agreed(one)) for name, one in value.keys)
    return replace(value.clean(), items=items, keys=keys)


def power(a: Any, b: Any) -> Any:
    """``a ** b``. Raises OverflowError where that would be a number of many digits."""
    if abs(a) > 1 << 32 or abs(b) > 64:
        raise OverflowError
    return a**b


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "Pow": power,
    "LShift": lambda a, b: a * power(2, b),
    "RShift": lambda a, b: a // power(2, b),
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda a, b: a in b,
    "NotIn": lambda a, b: a not in b,
}


def binary(name: str, a: Value, b: Value) -> Value:
    """An arithmetic expression."""
    atoms = tuple(_binary(name, x, y, a, b) for x, y in zip(a.atoms, b.atoms, strict=True))
    deps, origins = gathered((a, b))
    items = None
    if name == "Add" and a.items is not None and b.items is not None:
        items = (*a.items, *b.items)
    if name == "Mult" and a.items is not None and len(a.items) == 1:
        items = a.items
    return Value((atoms[0], atoms[1]), (), deps, origins, items)


def _binary(name: str, x: Any, y: Any, a: Value, b: Value) -> Any:
    if not isinstance(x, Symbol) and not isinstance(y, Symbol):
        x, y = _with_two(x, y, a, b)
        if name == "Mult" and not (isinstance(x, (int, float)) and isinstance(y, (int, float))):
            return Symbol("product")
        try:
            return sizes.apply(_BINARY[name], x, y) if name in _BINARY else Symbol(f"{x}{name}{y}")
        except Exception:  # arithmetic of the user's constants may fail
            return Symbol(f"{x}{name}{y}")
    # An unknown number of other nodes or of processes on this one: one node with two is read.
    if differs(a) and a.known and not differs(b) and name in ("Add", "Sub", "Mod", "Mult"):
        return x
    if differs(b) and b.known and not differs(a) and name in ("Add", "Mult"):
        return y
    return Symbol(f"({text(x)}{name}{text(y)})", (name, x, y))


def _with_two(x: Any, y: Any, a: Value, b: Value) -> tuple[Any, Any]:
    """The ranks that are read are those of two processes: ``rank == world_size - 1`` is the other
    one than rank 0."""
    return (sizes.with_two(x), sizes.with_two(y)) if differs(a) or differs(b) else (x, y)


def text(atom: Any) -> str:
    """An atom as part of a key."""
    return atom.key if isinstance(atom, Symbol) else repr(atom)


def compare(name: str, a: Value, b: Value) -> Value:
    """A comparison of two values."""
    atoms = tuple(_compare(name, x, y, a, b) for x, y in zip(a.atoms, b.atoms, strict=True))
    deps, origins = gathered((a, b))
    if name in ("Is", "IsNot") and not any(isinstance(v.constant, bool) for v in (a, b)):
        # whether there is one: ranks agree though their samples differ
        origins = frozenset(o for o in origins if o.kind != DATA)
    if name in ("In", "NotIn") and _is_dict(b):  # what it holds under its keys is not asked
        origins = spread(a) | frozenset(o for o in b.origins if o.kind != DATA)
    return Value((atoms[0], atoms[1]), (), deps, origins)


def _is_dict(value: Value) -> bool:
    return value.keys is not None or any(text(a).startswith("dict@") for a in value.atoms)


def _compare(name: str, x: Any, y: Any, a: Value, b: Value) -> Any:
    if name in ("In", "NotIn") and b.items is not None and all(i.known for i in b.items):
        y = [item.atoms[0] for item in b.items]
    if name in ("Is", "IsNot") and isinstance(x, Made) and y is None:
        return name == "IsNot"
    if name in ("Eq", "NotEq") and isinstance(x, Made) and y is None:
        return name == "NotEq"
    if isinstance(x, Symbol) or isinstance(y, Symbol):
        positive = name.replace("Not", "") if name in ("IsNot", "NotEq", "NotIn") else name
        key = f"({text(x)} {positive} {text(y)})"
        return Symbol(key if positive == name else f"not {key}", (name, x, y))
    try:
        truths = sizes.in_worlds(_COMPARE[name], *_with_two(x, y, a, b))
        return truths[0] if len(set(truths)) == 1 else _by_size(truths, name, x, y)
    except Exception:  # comparing the user's constants may fail
        return Symbol(f"({x!r} {name} {y!r})")


def _by_size(truths: tuple[bool, ...], name: str, x: Any, y: Any) -> Symbol:
    key, holds = sizes.condition(truths)
    return Symbol(key if holds else f"not {key}", (name, x, y))


def narrowed(old: Value, new: Value, ranks: int) -> Value:
    """``new`` on these ranks, ``old`` on the others."""
    if ranks == ALL:
        return new
    atoms = tuple((new if ranks & (1 << r) else old).atoms[r] for r in (0, 1))
    return replace(new, atoms=(atoms[0], atoms[1]))


def key_of(value: Value) -> str:
    atom = value.atoms[0]
    return atom.key if isinstance(atom, Symbol) else repr(atom)
