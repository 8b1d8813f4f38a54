"""Conditions that are answered where a program has opened its group: ``if args.world > 1:``.

What one process alone does is not read behind that, also where it asks in other words:
``if not distributed:``, ``if args.world == 1:``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.values import text, truth

Span = tuple[float, float, frozenset[int]]  # the first number, the last one, those it is not
_OPPOSITE: Final = {
    **{"Gt": "LtE", "LtE": "Gt", "Lt": "GtE", "GtE": "Lt"},
    **{"Eq": "NotEq", "NotEq": "Eq"},
}
_ANY: Final[Span] = (float("-inf"), float("inf"), frozenset())


@dataclass
class Settled:
    """The answers, by what is asked, and what is left of the numbers that were compared."""

    answers: dict[str, bool] = field(default_factory=dict)
    numbers: dict[str, Span] = field(default_factory=dict)

    def settle(self, test: RankValue, holds: bool) -> None:
        """Answer a condition for all that follows."""
        for atom in dict.fromkeys(test.atoms):
            self._settle(atom, holds)

    def _settle(self, atom: Any, holds: bool) -> None:
        kind, parts = _parts(atom)
        if kind == "Not":
            self._settle(parts[0], not holds)
            return
        self.answers[text(atom)] = holds
        for part in parts if kind == ("And" if holds else "Or") else ():
            self._settle(part, holds)
        of, op, number = _comparison(atom)
        if of:
            said = op if holds else _OPPOSITE[op]
            self.numbers[of] = _left(said, number, self.numbers.get(of, _ANY))

    def answer(self, atom: Any) -> bool | None:
        """What a condition comes to, as far as is known; None if it is not."""
        known = truth(atom)
        if known is not None or not self.answers:
            return known
        kind, parts = _parts(atom)
        if kind == "Not":
            inner = self.answer(parts[0])
            return None if inner is None else not inner
        said = self.answers.get(text(atom))
        if said is None and kind in ("And", "Or"):
            return _chained([self.answer(one) for one in parts], kind == "And")
        of, op, number = _comparison(atom)
        asked = said is None and of in self.numbers
        return _compared(op, number, self.numbers[of]) if asked else said


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
    low, high, without = span
    if op in ("Gt", "GtE", "Eq"):
        low = max(low, number + (op == "Gt"))
    if op in ("Lt", "LtE", "Eq"):
        high = min(high, number - (op == "Lt"))
    return low, high, without | {number} if op == "NotEq" else without


def _compared(op: str, number: int, span: Span) -> bool | None:
    """Whether all that is left, or none of it, compares so."""
    if op == "NotEq":
        equal = _compared("Eq", number, span)
        return None if equal is None else not equal
    low, high, without = left = _left(op, number, span)
    if low > high or (low == high and low in without):
        return False
    return True if left == span else None
