"""Arithmetic and comparisons of values, rank by rank."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ddpify.python.words import OWN_FILES
from ddpify.ranks import sizes
from ddpify.ranks.containers import ANY
from ddpify.ranks.entries import on_rank
from ddpify.ranks.model import RankValue
from ddpify.ranks.options import OneOf, is_given
from ddpify.ranks.origins import (
    CLOCK,
    COMPUTED,
    DATA,
    HASH,
    IDENTITY,
    RANDOM,
    TEXT,
    Origin,
    Symbol,
    found_under,
    of_text,
)
from ddpify.ranks.values import (
    ChosenApart,
    InPlace,
    Made,
    TextOf,
    counts,
    differs,
    gathered,
    rooted,
    same,
    spread,
    text,
)


def power(a: Any, b: Any) -> Any:
    """``a ** b``. Raises OverflowError where that would be a number of many digits."""
    if abs(a) > 1 << 32 or abs(b) > 64:
        raise OverflowError
    return a**b


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
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


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
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


def binary(name: str, a: RankValue, b: RankValue) -> RankValue:
    """An arithmetic expression."""
    atoms = tuple(_binary(name, x, y, a, b) for x, y in zip(a.atoms, b.atoms, strict=True))
    deps, origins = gathered((a, b))
    if name == "Sub" and _taken_off(a, b, atoms):
        same = Symbol(f"({text(a.atoms[0])}Sub{text(b.atoms[0])})")
        kept = frozenset(one for one in origins if one.kind not in IDENTITY)
        first = _is_rank(a) and not _is_rank(b)  # `rank - rank % n`: where its group begins
        return RankValue((same, same), (), deps, _computed(origins) if first else kept)
    if name != "Add":
        origins = _computed(origins)
    elif any(isinstance(v.constant, str) and v.constant for v in (a, b)):
        origins = of_text(origins)
    items = None
    if name == "Add" and a.items is not None and b.items is not None:
        items = (*a.items, *b.items)
    if name == "Mult" and a.items is not None and len(a.items) == 1:
        items = a.items
    keys = None
    if name == "BitOr" and a.keys is not None and b.keys is not None:
        keys = tuple({**dict(a.keys), **dict(b.keys)}.items())
    return RankValue((atoms[0], atoms[1]), (), deps, origins, items, keys)


def _taken_off(a: RankValue, b: RankValue, atoms: tuple[Any, ...]) -> bool:
    """``seed - rank`` where ``seed += rank`` was before: it is that of all ranks again."""
    kinds = [{one.kind for one in value.origins if one.kind in IDENTITY} for value in (a, b)]
    apart = differs(a) and differs(b) and kinds[0] == kinds[1] and len(kinds[0]) == 1
    return apart and not isinstance(atoms[0], Symbol) and bool(atoms[0] == atoms[1])


def _is_rank(value: RankValue) -> bool:
    """Whether it is the rank, or the rank and something more, not computed from it otherwise."""
    return any(o.kind in IDENTITY and not o.what.startswith(COMPUTED) for o in value.origins)


def _computed(origins: frozenset[Origin]) -> frozenset[Origin]:
    """``rank % 8`` is the rank no more, though with two ranks its values are those of the rank."""
    return frozenset(
        (
            replace(one, what=f"{COMPUTED}{one.what}")
            if one.kind in IDENTITY and not one.what.startswith(COMPUTED)
            else one
        )
        for one in origins
    )


class OwnNumber(int):
    """A number that is the rank's, of one node and two processes, instead of what it is computed
    from in full: ``rank * (len(rows) // world_size)``."""

    parts: tuple[Any, ...] = ()


def _binary(name: str, x: Any, y: Any, a: RankValue, b: RankValue) -> Any:
    made = _computed_from(name, x, y, a, b)
    if type(made) in (int, OwnNumber) and any(
        isinstance(one, (Symbol, OwnNumber)) for one in (x, y)
    ):
        made = OwnNumber(made)
        made.parts = (name, x, y)
    return made


def _computed_from(name: str, x: Any, y: Any, a: RankValue, b: RankValue) -> Any:
    if not isinstance(x, Symbol) and not isinstance(y, Symbol):
        x, y = _with_two(x, y, a, b)
        if name == "Mult" and not (isinstance(x, (int, float)) and isinstance(y, (int, float))):
            return Symbol("product")
        try:
            return (
                sizes.apply(ARITHMETIC[name], x, y)
                if name in ARITHMETIC
                else Symbol(f"{x}{name}{y}")
            )
        except Exception:  # arithmetic of the user's constants may fail
            return Symbol(f"{x}{name}{y}")
    if counts(x) or counts(y):
        return Symbol(f"({text(x)}{name}{text(y)})", (name, x, y))
    # An unknown number of other nodes or of processes on this one: one node with two is read.
    if differs(a) and a.known and not differs(b) and name in ("Add", "Sub", "Mod", "Mult"):
        return x
    if differs(b) and b.known and not differs(a) and name in ("Add", "Mult"):
        return y
    return Symbol(f"({text(x)}{name}{text(y)})", (name, x, y))


def _with_two(x: Any, y: Any, a: RankValue, b: RankValue) -> tuple[Any, Any]:
    """The ranks that are read are those of two processes: ``rank == world_size - 1`` is the other
    one than rank 0."""
    return (sizes.with_two(x), sizes.with_two(y)) if differs(a) or differs(b) else (x, y)


def compare(name: str, a: RankValue, b: RankValue) -> RankValue:
    """A comparison of two values."""
    if name in ("Is", "IsNot") and b.atoms == (None, None) and _is_spelled(a):
        return RankValue((name == "IsNot", name == "IsNot"))
    pairs = zip(a.atoms, b.atoms, strict=True)
    atoms = [_compare(name, x, y, a, on_rank(b, rank)) for rank, (x, y) in enumerate(pairs)]
    if name in ("In", "NotIn") and isinstance(a.constant, str):
        b = replace(b, origins=found_under(a.constant, b.origins))
    deps, origins = gathered((a, b))
    if name in ("Is", "IsNot") and not any(isinstance(v.constant, bool) for v in (a, b)):
        origins = frozenset(one for one in origins if not _is_content(one, a))
    if name in ("Eq", "NotEq") and any(map(_is_hash, (a, b))):  # with another of this process
        origins = frozenset(one for one in origins if one.what != HASH)
    if name in ("In", "NotIn") and is_dict(b):  # what it holds under its keys is not asked
        origins = spread(a) | frozenset(o for o in b.origins if o.kind != DATA)
    return RankValue((atoms[0], atoms[1]), (), deps, origins)


def _is_content(origin: Origin, value: RankValue) -> bool:
    """Whether this is no reason why a value is there on some ranks only: their samples differ, or
    what a text says, or what was written into a tensor."""
    if origin.kind == DATA or origin.what in OWN_FILES:
        return True
    if any(isinstance(atom, ChosenApart) for atom in map(rooted, value.atoms)):
        return False
    filled = any(isinstance(atom, InPlace) for atom in value.atoms)
    return origin.kind in (CLOCK, RANDOM) or (filled and same(*map(rooted, value.atoms)))


def _is_hash(value: RankValue) -> bool:
    return any(t.call is not None and t.call.name == "builtins.hash" for t in value.things)


def _is_spelled(value: RankValue) -> bool:
    """``"tcp://localhost:{}".format(port)``: a text, whatever is in it, and no other way."""
    thing = value.things[0] if len(value.things) == 1 else None
    if thing is None or thing.call is None or thing.call.method != "format":
        return False
    format_ = thing.call.receiver
    whole = all(text(atom).startswith(f"{thing.name}@{id(thing)}") for atom in value.atoms)
    return whole and format_ is not None and isinstance(format_.constant, str)


def is_dict(value: RankValue) -> bool:
    """Whether it is a dict, written out or made by ``dict``."""
    return value.keys is not None or any(text(a).startswith("dict@") for a in value.atoms)


def _compare(name: str, x: Any, y: Any, a: RankValue, b: RankValue) -> Any:
    if name in ("In", "NotIn") and b.items is not None and all(i.known for i in b.items):
        y = [item.atoms[0] for item in b.items]
    if name in ("In", "NotIn") and b.keys is not None and isinstance(x, (str, TextOf)):
        y = [key for key, _ in b.keys]
    if name in ("In", "NotIn") and isinstance(x, TextOf) and _is_none_of(x, y):
        return name == "NotIn"
    x = rooted(x) if name in ("Is", "IsNot") else x
    if name in ("Is", "IsNot") and y is None and _is_there(x):
        return name == "IsNot"
    if name in ("Eq", "NotEq") and (isinstance(x, Made) or is_given(x)) and y is None:
        return name == "NotEq"
    if name in ("Eq", "NotEq") and isinstance(x, OneOf) and _is_excluded(x, y):
        return name == "NotEq"
    if isinstance(x, Symbol) or isinstance(y, Symbol):
        positive = name.replace("Not", "") if name in ("IsNot", "NotEq", "NotIn") else name
        key = f"({text(x)} {positive} {text(y)})"
        return Symbol(key if positive == name else f"not {key}", (name, x, y))
    try:
        truths = sizes.in_worlds(COMPARISONS[name], *_with_two(x, y, a, b))
        return truths[0] if len(set(truths)) == 1 else _by_size(truths, name, x, y)
    except Exception:  # comparing the user's constants may fail
        return Symbol(f"({x!r} {name} {y!r})")


def _is_excluded(option: OneOf, value: Any) -> bool:
    return not isinstance(value, Symbol) and value not in option.values


def _is_none_of(one: TextOf, held: Any) -> bool:
    """Whether none of the texts that it may be is among those that are held."""
    return isinstance(held, list) and not any(each in held for each in (*one.texts, ANY))


def _is_there(atom: Any) -> bool:
    """Whether a value cannot be None: an object, a text, a sum, a difference, an answer, an option
    that has a value."""
    operator_ = atom.parts[0] if isinstance(atom, Symbol) and atom.parts else None
    made = isinstance(atom, Made) or is_given(atom)
    return made or operator_ in {*ARITHMETIC, *COMPARISONS, TEXT}


def _by_size(truths: tuple[bool, ...], name: str, x: Any, y: Any) -> Symbol:
    key, holds = sizes.condition(truths)
    return Symbol(key if holds else f"not {key}", (name, x, y))
