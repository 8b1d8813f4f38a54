"""``not``, ``and`` and ``or``: what is true, and which of the operands is the value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.sizes import Sized
from ddpify.ranks.values import Made, differs, gathered, split_by_rank, text, truth


def negation(value: RankValue) -> RankValue:
    """``not value``."""
    atoms: list[Any] = []
    for atom in value.atoms:
        known = truth(atom)
        if known is not None:
            atoms.append(not known)
        else:
            key = text(atom)
            key = key[4:] if key.startswith("not ") else f"not {key}"
            atoms.append(Symbol(key, ("Not", atom)))
    deps, _ = gathered((value,))
    return RankValue((atoms[0], atoms[1]), (), deps, value.origins)


def chain(is_and: bool, values: list[RankValue]) -> RankValue:
    """``a and b …`` or ``a or b …``: operands that are known drop out, rank by rank."""
    reached = (_reached(is_and, values, 0), _reached(is_and, values, 1))
    atoms = tuple(_chained(is_and, [value.atoms[rank] for value in values]) for rank in (0, 1))
    if not is_and and _is_number_of_rank(values):
        atoms = values[-1].atoms
    deps, _ = gathered(values)
    origins = frozenset(replace(o, under="") for value in values for o in value.all_origins)
    held = dict.fromkeys((*reached[0], *reached[1]))
    things = tuple(dict.fromkeys(thing for value in held for thing in value.things))
    apart = split_by_rank(things, reached)
    deps -= frozenset(things)
    return RankValue((atoms[0], atoms[1]), things, deps, origins, apart=apart)


def _reached(is_and: bool, values: list[RankValue], rank: int) -> list[RankValue]:
    """The operands that may be the result on one rank."""
    found: list[RankValue] = []
    for value in values:
        known = truth(value.atoms[rank])
        if known is not is_and or value is values[-1]:
            found.append(value)
        if known is (not is_and):
            break
    return found


def _is_number_of_rank(values: list[RankValue]) -> bool:
    """``given or rank``: as elsewhere, what differs between ranks is that of the distributed world,
    unless it is a condition."""
    *others, last = values
    told = last.known and differs(last) and not any(isinstance(a, bool) for a in last.atoms)
    return told and not any(truth(atom) for value in others for atom in value.atoms)


def _chained(is_and: bool, atoms: list[Any]) -> Any:
    left: list[Any] = []
    for atom in atoms:
        known = truth(atom)
        if known is (not is_and):
            return _default(left, atom) if left and not is_and else atom
        if known is None:
            left.append(atom)
    if not left:
        return atoms[-1]
    return left[0] if len(left) == 1 else Symbol(*_keyed(is_and, left))


def _default(left: list[Any], last: Any) -> Any:
    """``x or 1`` is true, but it need not be 1."""
    plain = last is True or isinstance(last, Sized)
    return last if plain else Made(*_keyed(False, [*left, last]))


def _keyed(is_and: bool, left: list[Any]) -> tuple[str, tuple[Any, ...]]:
    word = " and " if is_and else " or "
    parts = ("And" if is_and else "Or", *left)
    return f"({word.join(sorted(text(atom) for atom in left))})", parts
