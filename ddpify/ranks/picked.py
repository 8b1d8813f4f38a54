"""Samples that are chosen by what they hold: how many there are, each rank has for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ddpify.python.words import DRAWS, NUMPY, PYTHON
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import DATA, ITEM, PART, PICKED, PIECE, RANDOM, STRIDE, Origin, Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import with_origin
from ddpify.ranks.values import Many, rooted
from ddpify.site import Site

_COMPARES: Final = frozenset("Gt GtE Lt LtE Eq NotEq BitAnd BitOr BitXor Invert".split())
_TESTS: Final = frozenset(
    "gt ge lt le eq ne greater less isnan isinf isfinite isin bool logical_and logical_or"
    " logical_not".split()
)
_NUMBERS: Final = frozenset("item tolist int".split())
_EMPTY: Final = ("collections.defaultdict", "collections.Counter")
_DRAWS: Final = tuple(begin for begin, stream in DRAWS if stream in (PYTHON, NUMPY))
_NAMES: Final = frozenset("items keys named_parameters state_dict named_modules".split())
_PICKS: Final = frozenset("nonzero argwhere flatnonzero masked_select unique".split())
_SHAPED: Final = frozenset(
    f"torch.{name}" for name in "zeros ones empty rand randn arange randperm".split()
)


def by_mask(value: RankValue, index: RankValue, site: Site) -> RankValue:
    """``x[mask]``, where ``value`` is what else is known of it."""
    if not (index.has(DATA) and _is_mask(index)):
        return value
    return replace(value, origins=value.origins | {Origin(DATA, PICKED, site)})


def called(one: RankCall, value: RankValue) -> RankValue:
    """``mask.nonzero()``, ``torch.masked_select(x, mask)``."""
    if one.method not in _PICKS or not value.has(DATA):
        return value
    return with_origin(value, DATA, PICKED, one)


def note_key(m: RankMachine, base: RankValue, key: RankValue, site: Site) -> None:
    """Keep that a dict gets an entry under what this rank's samples say: a class, not the name of
    what is counted."""
    begun = base.keys is not None and all(name == "**" for name, _ in base.keys)
    begun = begun and not isinstance(rooted(base.atoms[0]), Many)
    made = base.made_by(*_EMPTY)
    if made is not None and made.call is not None:
        begun = len(made.call.given) == (made.call.method == "defaultdict")
    if not begun or not m.own(key.origins):
        return  # one that has its names already gets no others
    names = {thing.name.rpartition(".")[2] for thing in key.sources()}
    told = any(o.what == PART and o.site.within(site) for o in key.origins)
    drawn = key.has(RANDOM) and any(one.name.startswith(_DRAWS) for one in key.sources())
    told = told or drawn or _is_of_row(key)
    if names.isdisjoint(_NAMES) and (told or not names.isdisjoint(_NUMBERS)):
        m.run.keyed.append((base, site))


def _is_of_row(key: RankValue) -> bool:
    """Whether a key is a field of a row that was dealt to this rank, ``row["kind"]``; not the row
    itself, which may be the name of a field."""
    dealt = any(o.what in (PART, PIECE, STRIDE) for o in key.origins)
    parts = key.atoms[0].parts if isinstance(key.atoms[0], Symbol) else ()
    return dealt and parts[:1] == (ITEM,) and not isinstance(parts[2], Symbol)


def in_number(value: RankValue) -> frozenset[Origin]:
    """Why ranks may have another number of entries of it."""
    return frozenset(origin for origin in value.origins if origin.what == PICKED)


def _is_mask(index: RankValue) -> bool:
    made = (thing.call.method for thing in index.things if thing.call is not None)
    return any(method in _TESTS for method in made) or any(map(_compares, index.atoms))


def _compares(atom: Any) -> bool:
    return isinstance(atom, Symbol) and atom.parts[:1] != () and atom.parts[0] in _COMPARES


def rows_of(base: RankValue) -> int | None:
    """How many rows ``torch.randn(17, 3)`` has, or a list that is written out."""
    if base.items and all(
        isinstance(one, Many) and one.number == len(base.items) for one in base.atoms
    ):
        return len(base.items)
    made = [thing.call for thing in base.things if thing.name in _SHAPED and thing.call]
    given = made[0].args[0].constant if len(made) == 1 and made[0].args else None
    if made and made[0].method == "arange" and len(made[0].args) > 1:
        return None
    return int(given) if isinstance(given, (int, float)) and given == given // 1 else None
