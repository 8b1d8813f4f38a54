"""Conditions that are answered where a program has opened its group: ``if args.world > 1:``.

What one process alone does is not read behind that, also where it asks in other words:
``if not distributed:``, ``if args.world == 1:``.
"""

from __future__ import annotations

from typing import Any, Final

from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import text, truth

Span = tuple[float, float]  # the first number and the last one
_OPPOSITE: Final = {
    **{"Gt": "LtE", "LtE": "Gt", "Lt": "GtE", "GtE": "Lt"},
    **{"Eq": "NotEq", "NotEq": "Eq"},
}
_ANY: Final[Span] = (float("-inf"), float("inf"))


def settle(m: RankMachine, test: RankValue, holds: bool) -> None:
    """Answer a condition for all that follows."""
    for atom in dict.fromkeys(test.atoms):
        _settle(m, atom, holds)


def _settle(m: RankMachine, atom: Any, holds: bool) -> None:
    kind, parts = _parts(atom)
    if kind == "Not":
        _settle(m, parts[0], not holds)
        return
    m.settled[text(atom)] = holds
    for part in parts if kind == ("And" if holds else "Or") else ():
        _settle(m, part, holds)
    of, op, number = _comparison(atom)
    if of:
        m.within[of] = _left(op if holds else _OPPOSITE[op], number, m.within.get(of, _ANY))


def answer(m: RankMachine, atom: Any) -> bool | None:
    """What a condition comes to, as far as is known; None if it is not."""
    known = truth(atom)
    if known is not None or not m.settled:
        return known
    kind, parts = _parts(atom)
    if kind == "Not":
        inner = answer(m, parts[0])
        return None if inner is None else not inner
    said = m.settled.get(text(atom))
    if said is None and kind in ("And", "Or"):
        return _chained([answer(m, one) for one in parts], kind == "And")
    of, op, number = _comparison(atom)
    return _compared(op, number, m.within[of]) if said is None and of in m.within else said


def _parts(atom: Any) -> tuple[str, tuple[Any, ...]]:
    kind, *parts = (atom.parts if isinstance(atom, Symbol) else ()) or ("",)
    return kind, tuple(parts)


def _chained(parts: list[bool | None], is_and: bool) -> bool | None:
    if (not is_and) in parts:
        return not is_and
    return None if None in parts else is_and


def _comparison(atom: Any) -> tuple[str, str, int]:
    """``("world", "Gt", 1)`` of ``world > 1``."""
    parts = atom.parts if isinstance(atom, Symbol) else ()
    if len(parts) == 3 and parts[0] in _OPPOSITE and type(parts[2]) is int:
        return text(parts[1]), parts[0], parts[2]
    return "", "", 0


def _left(op: str, number: int, span: Span) -> Span:
    """The numbers that are left where they compare so."""
    low, high = span
    if op in ("Gt", "GtE", "Eq"):
        low = max(low, number + (op == "Gt"))
    if op in ("Lt", "LtE", "Eq"):
        high = min(high, number - (op == "Lt"))
    return low, high


def _compared(op: str, number: int, span: Span) -> bool | None:
    """Whether all that is left, or none of it, compares so."""
    if op == "NotEq":
        equal = _compared("Eq", number, span)
        return None if equal is None else not equal
    left = _left(op, number, span)
    if left[0] > left[1]:
        return False
    return True if left == span else None
