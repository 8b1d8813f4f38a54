"""How many rows of a tensor a rank has that took its part of them."""

from __future__ import annotations

from typing import Any

from ddpify.ranks.model import RankValue
from ddpify.ranks.operations import ARITHMETIC
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.values import OwnRows


def _of_atom(atom: Any) -> OwnRows | None:
    if isinstance(atom, OwnRows) or not isinstance(atom, Symbol) or len(atom.parts) != 3:
        return atom if isinstance(atom, OwnRows) else None
    name, one, other = atom.parts
    if name == ITEM:
        return _of_atom(other)  # `y[indices]`
    if name == "MatMult":
        return _of_atom(one)
    return _of_atom(one) or _of_atom(other) if name in ARITHMETIC else None


def are_uneven(value: RankValue) -> bool | None:
    """Whether the ranks have unequal numbers of rows; None if that hangs on a number that is not
    known."""
    one, other = map(_of_atom, value.atoms)
    if one is None or other is None or not (one.stride or _takes_the_rest(one, other)):
        return False
    return None if one.rows is None else one.rows % 2 == 1


def _takes_the_rest(one: OwnRows, other: OwnRows) -> bool:
    """``rows[lo:]`` on the last rank, ``rows[lo:hi]`` on the others."""
    if len(one.bounds) < 2 or len(other.bounds) < 2:
        return False
    ends = (one.bounds[1].atoms[0], other.bounds[1].atoms[1])
    open_, closed = (end is None or isinstance(end, Symbol) for end in ends)
    return open_ is not closed
