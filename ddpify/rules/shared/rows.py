"""How many rows of a tensor a rank has that took its part of them."""

from __future__ import annotations

from typing import Any, Final

from ddpify.ranks import sizes
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.operations import ARITHMETIC
from ddpify.ranks.origins import ITEM, Symbol
from ddpify.ranks.values import OwnRows

_KEEPING: Final = frozenset(
    """cuda cpu to float double half bfloat16 int long bool contiguous detach clone softmax relu
    log_softmax sigmoid tanh exp log sqrt abs square clamp round numpy""".split()
)
_ALONG: Final = frozenset("argmax argmin sum mean norm".split())  # they keep rows with dim=1
_MODULES: Final = ("torch.", "torch.nn.functional.")


def part_of(value: RankValue, rank: int) -> OwnRows | None:
    """The part of some rows that this is computed from, row by row."""
    found = _of_atom(value.atoms[rank])
    if found is not None or len(value.things) != 1:
        return found
    call = value.things[0].call
    return _of_call(call, rank) if call is not None and value.things[0].kind == "result" else None


def _of_atom(atom: Any) -> OwnRows | None:
    if isinstance(atom, OwnRows) or not isinstance(atom, Symbol) or len(atom.parts) != 3:
        return atom if isinstance(atom, OwnRows) else None
    name, one, other = atom.parts
    if name == ITEM:
        return _of_atom(other)  # `y[indices]`
    if name == "MatMult":
        return _of_atom(one)
    return _of_atom(one) or _of_atom(other) if name in ARITHMETIC else None


def _of_call(call: RankCall, rank: int) -> OwnRows | None:
    """``model(x)``, ``x.argmax(1)``, ``torch.softmax(x, 1)``."""
    if call.method == "__call__":
        return part_of(call.args[0], rank) if call.args else None
    plain = call.name.removesuffix(call.method) in _MODULES and bool(call.args)
    of, others = (call.args[0], call.args[1:]) if plain else (call.receiver, call.args)
    dim = call.kwargs.get("dim") or (others[0] if others else None)
    along = call.method in _ALONG and dim is not None and dim.constant in (1, -1)
    return part_of(of, rank) if of is not None and (along or call.method in _KEEPING) else None


def are_uneven(value: RankValue) -> bool | None:
    """Whether the ranks have unequal numbers of rows; None if that hangs on a number that is not
    known."""
    one, other = (part_of(value, rank) for rank in (0, 1))
    if one is None or other is None:
        return False
    counts = [_count(part, rank) for rank, part in enumerate((one, other))]
    if None not in counts:
        return counts[0] != counts[1]
    if not one.stride and not _takes_the_rest(one, other):
        return False
    return None if one.rows is None else one.rows % 2 == 1


def _count(part: OwnRows, rank: int) -> int | None:
    """The number of rows, with two ranks."""
    bounds = [sizes.with_two(bound.atoms[rank]) for bound in part.bounds]
    if part.rows is None or not all(isinstance(bound, (int, type(None))) for bound in bounds):
        return None
    return len(range(part.rows)[slice(*bounds)])


def _takes_the_rest(one: OwnRows, other: OwnRows) -> bool:
    """``rows[lo:]`` on the last rank, ``rows[lo:hi]`` on the others."""
    if len(one.bounds) < 2 or len(other.bounds) < 2:
        return False
    ends = (one.bounds[1].atoms[0], other.bounds[1].atoms[1])
    open_, closed = (end is None or isinstance(end, Symbol) for end in ends)
    return open_ is not closed
