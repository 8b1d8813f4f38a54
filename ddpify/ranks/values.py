"""Making and combining values: per-rank constants, where they come from, joins after branches."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ddpify.ranks.entries import lacking
from ddpify.ranks.model import ALL, RANK0, RANK1, RankThing, RankValue
from ddpify.ranks.origins import TEXT, DividedByRank, Origin, Symbol, of_anything

MAX_DEPS = 80
TENSOR = "tensor?"  # so begins the key of a question whether a value is a tensor
SHARDED = "sharded?"  # and whether a model is sharded, of one that is not seen to be


class Made(Symbol):
    """An object: not None, and true unless something else is known."""


@dataclass(frozen=True)
class TextOf(Made):
    """One of these texts, whichever the branches have set."""

    texts: tuple[str, ...] = field(default=(), compare=False, repr=False)
    __hash__ = Symbol.__hash__


class Maybe(Symbol):
    """None or an object: which of both is the same on all ranks."""


class ChosenApart(Symbol):
    """One of several values, of which each rank has chosen for itself."""


@dataclass(frozen=True)
class InPlace(Symbol):
    """What was changed in place; ``before``: what it was, which is there if this is."""

    before: Any = field(default=None, compare=False, repr=False)


class Turn(Symbol):
    """A number that is another one in each round of a loop."""


@dataclass(frozen=True)
class Many(Symbol):
    """A list that was written out or comprehended; ``number``: how many elements it began with."""

    number: Any = field(default=None, compare=False, repr=False)
    over: Any = field(default=None, compare=False, repr=False)  # what a comprehension goes through
    __hash__ = Symbol.__hash__


@dataclass(frozen=True)
class Length(Symbol):
    """``len(items)``; ``of``: the list as it was."""

    of: Any = field(default=None, compare=False, repr=False)
    __hash__ = Symbol.__hash__


@dataclass(frozen=True)
class OwnRows(Symbol):
    """``rows[a:b:c]`` with bounds that say the rank; ``rows``: of how many, if that is known."""

    bounds: tuple[RankValue, ...] = field(default=(), compare=False, repr=False)
    rows: int | None = field(default=None, compare=False, repr=False)
    stride: bool = field(default=False, compare=False, repr=False)
    base: RankValue | None = field(default=None, compare=False, repr=False)
    __hash__ = Symbol.__hash__


class Hashed(Symbol):
    """A set: the order of its elements is that of their hashes."""


class Absent(Symbol):
    """What a rank has in place of a list's element that other ranks alone put in."""


NONE = RankValue((None, None))
TRUE = RankValue((True, True))
FALSE = RankValue((False, False))


def constant(value: Any) -> RankValue:
    """The same constant on both ranks."""
    return RankValue((value, value))


def symbol(key: str, *parts: RankValue) -> RankValue:
    """An unknown value, computed from others."""
    one = Symbol(key)
    return RankValue((one, one), (), *gathered(parts))


def turn(key: str) -> RankValue:
    """A number that a loop counts."""
    one = Turn(key)
    return RankValue((one, one))


def counts(atom: Any) -> bool:
    """Whether a number is computed from one that a loop counts."""
    return isinstance(atom, Turn) or (isinstance(atom, Symbol) and any(map(counts, atom.parts)))


def of(thing: RankThing, *parts: RankValue) -> RankValue:
    """A value that is this thing, computed from others."""
    one = Made(f"{thing.name}@{id(thing)}")
    return RankValue((one, one), (thing,), *gathered(parts))


def gathered(parts: Iterable[RankValue]) -> tuple[frozenset[RankThing], frozenset[Origin]]:
    """What a value is made from that is computed from these, and why it may differ."""
    deps: set[RankThing] = set()
    origins: set[Origin] = set()
    for part in parts:
        deps.update(part.things)
        deps |= part.made_from
        origins |= part.all_origins
    if len(deps) > MAX_DEPS:
        deps = set(sorted(deps, key=_weight)[:MAX_DEPS])
    return frozenset(deps), of_anything(frozenset(origins))


def _weight(thing: RankThing) -> bool:
    """Things that rules ask for come first."""
    return not thing.name.startswith(("torch.utils.data", "torch.nn.parallel", "torch.distributed"))


def spread(value: RankValue) -> frozenset[Origin]:
    """The origins of a value and of its elements."""
    return of_anything(value.all_origins)


def same(a: Any, b: Any) -> bool:
    """Whether two atoms are surely equal."""
    if a is b:
        return True
    if isinstance(a, Symbol) or isinstance(b, Symbol):
        return isinstance(a, Symbol) and isinstance(b, Symbol) and a.key == b.key
    return type(a) is type(b) and bool(a == b)


def differs(value: RankValue) -> bool:
    """Whether the two ranks are known to have different atoms."""
    return not same(*value.atoms)


def truth(atom: Any) -> bool | None:
    """Whether an atom is true; None if unknown."""
    if isinstance(atom, Made) or _has_words(atom):
        return True
    if isinstance(atom, Symbol):
        return None
    try:
        return bool(atom)
    except Exception:  # a constant of the user's is only looked at
        return None


def _has_words(atom: Any) -> bool:
    """Whether an atom is a sum of texts, or an f-string, that is not empty whatever is in it."""
    parts = atom.parts if isinstance(atom, Symbol) else ()
    return parts[:1] in ((TEXT,), ("Add",)) and any(isinstance(o, str) and o for o in parts[1:])


def rooted(atom: Any) -> Any:
    """What an atom was before it was changed in place, again and again."""
    while isinstance(atom, InPlace):
        atom = atom.before
    return atom


def merge(
    key: str,
    sources: tuple[list[RankValue], list[RankValue]],
    why: frozenset[Origin],
    always: bool = False,
) -> RankValue:
    """One value from those that rank 0 and rank 1 may have; ``why`` they may differ, if so.

    ``always``: each rank chooses among them for itself.
    """
    first, *others = (*sources[0], *sources[1])
    if all(other is first for other in others):  # most often; to compare them takes longer
        return first
    flat = list(dict.fromkeys((first, *others)))
    if len(flat) == 1:
        return first
    apart = bool(why) and (always or not all(set(values) == set(flat) for values in sources))
    atom = _joined(key, sources[0], 0, apart)
    alike = are_alike(sources) and all(value.atoms[0] is value.atoms[1] for value in flat)
    other = atom if alike else _joined(key, sources[1], 1, apart)
    things = tuple(dict.fromkeys(thing for value in flat for thing in value.things))
    deps = frozenset().union(*(value.deps for value in flat))
    origins = frozenset().union(*(value.origins for value in flat))
    if apart:
        origins |= why
    alike = all(v.items == flat[0].items for v in flat)
    items = flat[0].items if alike else _items(key, sources, why, always)
    alike = all(v.keys == flat[0].keys for v in flat)
    keys = flat[0].keys if alike else _keys(key, sources, why, always)
    split = split_by_rank(things, sources)
    return RankValue((atom, other), things, deps, origins, items, keys, split)


def are_alike(sources: tuple[list[RankValue], list[RankValue]]) -> bool:
    """Whether both ranks have the very same values, as they mostly have."""
    first, second = sources
    return len(first) == len(second) and all(map(operator.is_, first, second))


def split_by_rank(
    things: tuple[RankThing, ...], sources: tuple[list[RankValue], list[RankValue]]
) -> tuple[tuple[RankThing, int], ...]:
    """The things that only one rank's values may be."""
    if are_alike(sources) and not any(value.apart for value in sources[0]):
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
    key: str, held: list[tuple[int, RankValue]], why: frozenset[Origin], always: bool = False
) -> RankValue:
    """One value from some that only these ranks have; what a rank without one has is not asked."""
    sources: tuple[list[RankValue], list[RankValue]] = ([], [])
    for ranks, value in held:
        for rank in (0, 1):
            if ranks & (1 << rank):
                sources[rank].append(value)
    for rank in (0, 1):
        if not sources[rank]:
            sources[rank].extend(sources[1 - rank] or [symbol("nowhere")])
    return merge(key, sources, why, always)


def _items(
    key: str, sources: tuple[list[RankValue], list[RankValue]], why: frozenset[Origin], always: bool
) -> tuple[RankValue, ...] | None:
    """Elements of tuples of one length are merged one by one; of others the longest stands."""
    held = [[v.items for v in values if v.items is not None] for values in sources]
    both = [*held[0], *held[1]]
    if len({len(items) for items in both}) != 1:
        return _uneven(sources, why) or _longest(key, both)
    if not all(sources) or len(both) != len(sources[0]) + len(sources[1]):
        held, why, always = [both, both], frozenset(), False  # some are no tuples
    columns = zip(zip(*held[0], strict=True), zip(*held[1], strict=True), strict=True)
    return tuple(
        merge(f"{key}[{number}]", (list(one), list(other)), why, always)
        for number, (one, other) in enumerate(columns)
    )


def _longest(key: str, lists: list[tuple[RankValue, ...]]) -> tuple[RankValue, ...] | None:
    """The longest of some lists; an object in it may also be what another has in its place,
    counted from the front or from the end: ``[train]`` and ``[val, train]``."""
    longest = max(lists, key=len, default=None)
    if longest is None or not any(item.things for item in longest):
        return longest
    found = []
    for number in range(len(longest)):
        counted = [(items, (number, number - len(longest) + len(items))) for items in lists]
        held = [items[at] for items, places in counted for at in places if 0 <= at < len(items)]
        found.append(merge(f"{key}[{number}]", (held, held), frozenset()))
    return tuple(found)


def _uneven(
    sources: tuple[list[RankValue], list[RankValue]], why: frozenset[Origin]
) -> tuple[RankValue, ...] | None:
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


def only_on(item: RankValue, rank: int, why: frozenset[Origin]) -> RankValue:
    """An element that one rank alone has."""
    none = Absent("absent")
    atoms = (none, item.atoms[1]) if rank else (item.atoms[0], none)
    return replace(item, atoms=atoms, origins=item.origins | why)


def holders(item: RankValue) -> int:
    """The ranks whose list has this element."""
    return sum(1 << rank for rank in (0, 1) if not isinstance(item.atoms[rank], Absent))


def _keys(
    key: str, sources: tuple[list[RankValue], list[RankValue]], why: frozenset[Origin], always: bool
) -> tuple[tuple[str, RankValue], ...] | None:
    """Entries are merged one by one; a list that is not there yet is an empty one."""
    held = [[dict(v.keys) for v in values if v.keys is not None] for values in sources]
    if not all(held):
        held, why, always = [[*held[0], *held[1]]] * 2, frozenset(), False
    names = dict.fromkeys(name for entries in held for one in entries for name in one)
    made = []
    for name in names:
        found = [[one[name] for one in entries if name in one] for entries in held]
        given = found[0] or found[1]
        empty = RankValue(symbol(f"list@{key}").atoms, items=()) if given[0].items else given[0]
        columns = (found[0] or [empty], found[1] or [empty])
        one, lacks = merge(f"{key}[{name}]", columns, why, always), lacking(found, why)
        made.append((name, one if lacks is one.lacks else replace(one, lacks=lacks)))
    return tuple(made) or None


def _joined(key: str, values: list[RankValue], rank: int, apart: bool) -> Any:
    """The atom of one rank. A value that differs between ranks is that of the distributed world."""
    if not values:
        return None
    unlike = [value for value in values if differs(value)]
    by_rank = [one for one in unlike if one.known or DividedByRank in map(type, one.atoms)]
    atoms = [value.atoms[rank] for value in (by_rank or values)]
    first = atoms[0]
    if all(same(first, other) for other in atoms):
        return first
    if all(truth(atom) is True for atom in atoms):
        texts = tuple(one for atom in atoms for one in _texts(atom))
        whole = not by_rank and all(map(_texts, atoms))
        return TextOf(key, texts=texts) if whole else Made(key)
    roots = [rooted(atom) for atom in atoms]
    if all(same(roots[0], other) for other in roots):
        return InPlace(key, before=roots[0])
    if apart or any(isinstance(atom, ChosenApart) for atom in atoms):
        return ChosenApart(key)
    if by_rank:
        return DividedByRank(f"{key}#{rank}")
    return Maybe(key) if _is_optional(atoms) else Symbol(key)


def _texts(atom: Any) -> tuple[str, ...]:
    """The texts that a value may be; none where that is not known."""
    return atom.texts if isinstance(atom, TextOf) else (atom,) if isinstance(atom, str) else ()


def _is_optional(atoms: list[Any]) -> bool:
    """Whether these are None or objects, not numbers or conditions."""
    objects = [a for a in atoms if isinstance(a, Symbol) and a.parts[:1] in ((), (TEXT,))]
    absent = any(a is None or isinstance(a, Maybe) for a in atoms)
    return absent and all(a is None or a in objects for a in atoms)


def asks_presence(test: RankValue) -> bool:
    """Whether a condition tells no more than if there is an object: the same on all ranks."""
    return all(isinstance(_asked(atom), Maybe) for atom in test.atoms)


def _asked(atom: Any) -> Any:
    """``x`` of ``not x``."""
    negated = isinstance(atom, Symbol) and atom.parts[:1] == ("Not",)
    return atom.parts[1] if negated else atom


def agreed(value: RankValue) -> RankValue:
    """The same on all ranks, elements included."""
    items = None if value.items is None else tuple(map(agreed, value.items))
    keys = None if value.keys is None else tuple((name, agreed(one)) for name, one in value.keys)
    return replace(value.clean(), items=items, keys=keys)


def text(atom: Any) -> str:
    """An atom as part of a key."""
    return atom.key if isinstance(atom, Symbol) else repr(atom)


def narrowed(old: RankValue, new: RankValue, ranks: int) -> RankValue:
    """``new`` on these ranks, ``old`` on the others."""
    if ranks == ALL:
        return new
    atoms = tuple((new if ranks & (1 << r) else old).atoms[r] for r in (0, 1))
    return replace(new, atoms=(atoms[0], atoms[1]))


def key_of(value: RankValue) -> str:
    atom = value.atoms[0]
    return atom.key if isinstance(atom, Symbol) else repr(atom)
