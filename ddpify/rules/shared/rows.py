"""How many rows of a tensor a rank has that took its part of them."""

from __future__ import annotations

from typing import Any, Final

from ddpify.ranks.model import RankValue
from ddpify.ranks.operations import ARITHMETIC
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.values import Many, OwnRows

_JOINING: Final = frozenset(
    "torch.stack torch.cat torch.concat torch.vstack torch.tensor numpy.array".split()
)
_KEEPING: Final = frozenset("to cpu cuda float half contiguous detach clone".split())


def _of_atom(atom: Any) -> OwnRows | None:
    if isinstance(atom, OwnRows) or not isinstance(atom, Symbol) or len(atom.parts) != 3:
        return atom if isinstance(atom, OwnRows) else None
    name, one, other = atom.parts
    if name == ITEM:
        return _of_atom(other)  # `y[indices]`
    if name == "MatMult":
        return _of_atom(one)
    return _of_atom(one) or _of_atom(other) if name in ARITHMETIC else None


def _of_list(value: RankValue, depth: int = 4) -> tuple[OwnRows | None, OwnRows | None]:
    """Those of ``torch.stack([f(row) for row in mine])``."""
    made = value.things[0].call if len(value.things) == 1 else None
    given = made.args[0] if made is not None and made.args else None
    if made is None or given is None or made.name not in _JOINING:
        of = made.receiver if made is not None and made.method in _KEEPING else None
        return _of_list(of, depth - 1) if of is not None and depth else (None, None)
    one, other = (atom.over if isinstance(atom, Many) else None for atom in given.atoms)
    return _of_atom(one), _of_atom(other)


def are_uneven(value: RankValue) -> bool | None:
    """Whether the ranks have unequal numbers of rows; None if that hangs on a number that is not
    known."""
    one, other = map(_of_atom, value.atoms)
    if one is None or other is None:
        one, other = _of_list(value)
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
