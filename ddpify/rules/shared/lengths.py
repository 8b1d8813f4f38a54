"""How long a list is on one rank, where that is sure."""

from __future__ import annotations

import operator
from typing import Any

from ddpify.ranks import sizes
from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.values import Many


def length(value: RankValue, rank: int) -> int | None:
    """The number of elements; None if it is not known, be it since some were added later."""
    atom = value.atoms[rank]
    known = _known(atom)
    if known is None or value.items is None:
        return None
    number, written = known
    grown = len(value.items) != (written if written is not None else len(value.items))
    return None if grown else number


def _known(atom: Any) -> tuple[int, int | None] | None:
    """The length, and how many elements stand for them."""
    if isinstance(atom, Many):
        number = atom.number
        written = number if atom.key.startswith("[") else 1
        return (number, written) if isinstance(number, int) else None
    parts = atom.parts if isinstance(atom, Symbol) else ()
    if parts[:1] != ("Mult",):
        return None
    for one, times in (parts[1:3], (parts[2], parts[1])):
        held = _known(one)
        if held is not None and isinstance(times, int):
            return sizes.apply(operator.mul, held[0], times), held[1]
    return None


def is_given(value: RankValue | None, rank: int) -> bool | None:
    """Whether a rank has a list; None if that is not sure, as of one that was empty at first."""
    atom = value.atoms[rank] if value is not None else None
    if value is None or atom is None:
        return False
    empty = isinstance(atom, Many) and atom.number == 0
    return True if value.items and not empty else None
