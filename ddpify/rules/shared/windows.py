"""Accumulation windows: in which rounds of a loop a call happens, from the conditions around it.

Conditions are evaluated for sample numbers of rounds: ``(i + 1) % k == 0`` and ``i % k == k - 1``
are then the same, however they are written, and a condition that is not understood is None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ddpify.ranks.events import Exit, Read, Store
from ddpify.ranks.model import RankCall, RankGuard, RankLoop, RankValue
from ddpify.ranks.operations import ARITHMETIC, COMPARISONS
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run

MICRO: Final = 4  # what an unknown number of micro-batches is taken to be
_WHOLE: Final = "Add Sub Mult FloorDiv Mod Eq NotEq Lt LtE Gt GtE".split()  # of whole numbers
_OPERATORS: Final = {name: {**ARITHMETIC, **COMPARISONS}[name] for name in _WHOLE}

Moment = RankCall | Store | Read


def evaluate(atom: Any, known: dict[str, Any]) -> Any:
    """An atom for these values of its symbols; None if it is not known."""
    if not isinstance(atom, Symbol):
        return atom
    if atom.key in known:
        return known[atom.key]
    if not atom.parts:
        return None
    name, *operands = atom.parts
    values = [evaluate(one, known) for one in operands]
    if name == "Not":
        return None if values[0] is None else not values[0]
    if name in ("And", "Or"):
        return _chained(name == "And", values)
    if name not in _OPERATORS or any(not isinstance(v, int) for v in values):
        return None
    try:
        return _OPERATORS[name](*values)
    except ZeroDivisionError:
        return None


def _chained(is_and: bool, values: Iterable[Any]) -> bool | None:
    result: bool | None = is_and
    for value in values:
        if value is not None and bool(value) is not is_and:
            return not is_and
        if value is None:
            result = None
    return result


def symbols(atom: Any) -> Iterator[Symbol]:
    """The symbols of an expression, itself included."""
    if isinstance(atom, Symbol):
        yield atom
        for part in atom.parts[1:]:
            yield from symbols(part)


@dataclass(frozen=True)
class Window:
    """The rounds of one loop, with sample values for what its conditions ask."""

    run: Run
    loop: RankLoop
    numbers: range
    micro: int | None  # how many micro-batches, if it is known
    given: tuple[tuple[str, int], ...]
    counters: frozenset[str]

    def known(self, number: int) -> dict[str, Any]:
        """Values of the symbols in this round."""
        return {**dict(self.given), **dict.fromkeys(self.counters, number)}

    def happens(self, one: Moment, number: int) -> bool | None:
        """Whether the call or assignment comes about in this round; None if it is not known."""
        known = self.known(number)
        held = [self._guard(guard, known) for guard in one.guards]
        held += [self._passed(end, one, known) for end in _before(self.run, one)]
        return _chained(True, held)

    def decides(self, one: Moment) -> bool:
        """Whether a condition on the number of the round stands before it."""
        guards = (*one.guards, *(g for end in _before(self.run, one) for g in end.guards))
        return any(map(self.counts, guards))

    def _guard(self, guard: RankGuard, known: dict[str, Any]) -> bool | None:
        if not self.counts(guard):
            return True
        value = evaluate(guard.test.atoms[0], known)
        return None if value is None else bool(value) is guard.holds

    def _passed(self, end: Exit, one: Moment, known: dict[str, Any]) -> bool | None:
        held = [g for g in end.guards if g not in one.guards]
        if not any(map(self.counts, held)):
            return True
        left = _chained(True, [self._guard(guard, known) for guard in held])
        return None if left is None else not left

    def counts(self, guard: RankGuard) -> bool:
        """Whether a condition asks for the number of the round."""
        known = self.known(0)
        return any(one.key in known for one in symbols(guard.test.atoms[0]))


def _before(run: Run, one: Moment) -> Iterator[Exit]:
    """The exits that a call of the same round, or of the same function call, comes after."""
    entered = one.stack[-1].order if one.stack else 0
    for end in run.exits_of.get(one.function, ()):
        if not entered < end.order < one.order:
            continue
        if end.kind == "return" or (end.loops and end.loops == one.loops):
            yield end


def window(run: Run, loop: RankLoop, conditions: Iterable[RankValue], extra: int) -> Window | None:
    """The rounds of a loop: twice the micro-batches and ``extra`` more. None for a loop of one."""
    atoms = tuple({id(value.atoms[0]): value.atoms[0] for value in conditions}.values())
    counters = _counters(loop, atoms)
    found = [list(symbols(atom)) for atom in atoms]
    asked = [one for each in found if any(s.key in counters for s in each) for one in each]
    divisors = [one.parts[2] for one in asked if one.parts[:1] == ("Mod",)]
    length = _length(run, loop)
    whole = length is not None and not _is_of_windows(length, divisors)
    if whole:
        divisors = [length]
    sizes = [one for one in divisors if isinstance(one, int) and not isinstance(one, bool)]
    micro = max(sizes, default=MICRO)
    if micro < 2:
        return None
    rounds = micro if whole else 2 * micro + extra
    given = {length.key: rounds} if isinstance(length, Symbol) else {}
    given.update({one.key: micro for one in divisors if isinstance(one, Symbol)})
    given.update({one.key: rounds for one in asked if one.key.startswith("len(")})
    start = _start(loop)
    numbers = range(start, start + rounds)
    known = max(sizes) if sizes else None
    return Window(run, loop, numbers, known, tuple(given.items()), counters)


def _is_of_windows(length: Any, divisors: list[Any]) -> bool:
    """``for i in range(batches)``, some of which step: ``i % k``."""
    return isinstance(length, Symbol) and any(one != length for one in divisors)


def _counters(loop: RankLoop, atoms: Iterable[Any]) -> frozenset[str]:
    """The keys of the number of the round: the loop's own, or a count that the program keeps."""
    keys = {f"index@{loop.site}", f"element@{loop.site}"}
    for atom in atoms:
        for one in symbols(atom):
            if one.parts[:1] == ("Mod",):
                keys |= {s.key for s in symbols(one.parts[1]) if not s.parts}
    others = ("index@", "element@", "len(")
    own = {f"index@{loop.site}", f"element@{loop.site}"}
    return frozenset(key for key in keys if key in own or not key.startswith(others))


def _length(run: Run, loop: RankLoop) -> Any:
    """The bound of ``for i in range(bound)``, a number or a symbol."""
    made = counted(run, loop)
    return made.args[0].atoms[0] if made is not None and len(made.args) == 1 else None


def counted(run: Run, loop: RankLoop) -> RankCall | None:
    """The ``range`` that a loop goes over: its own, or that of the function of the project which
    yields once in each of its rounds."""
    made = loop.over.made_by("builtins.range") if loop.over is not None else None
    if made is not None:
        return made.call
    over = getattr(loop.node, "iter", None)
    numbered = loop.over.made_by("builtins.enumerate") if loop.over is not None else None
    if numbered is not None and numbered.call is not None and numbered.call.args:
        over = numbered.call.node.args[0]
    inside = (c for c in run.named("builtins.range") if c.stack and c.stack[-1].node is over)
    return next((c for c in inside if _yields_each_round(c)), None)


def _yields_each_round(numbers: RankCall) -> bool:
    """Whether a function goes over these numbers and yields once for each, and nowhere else."""
    node = numbers.function.node if numbers.function is not None else None
    body = node.body if isinstance(node, ast.FunctionDef) else []
    loop = next((one for one in body if getattr(one, "iter", None) is numbers.node), None)
    if not isinstance(loop, ast.For):
        return False
    leaves = (ast.Yield, ast.YieldFrom, ast.Return, ast.Break, ast.Continue)
    found = [one for top in body for one in ast.walk(top) if isinstance(one, leaves)]
    plain = [one.value for one in loop.body if isinstance(one, ast.Expr)]
    return len(found) == 1 and isinstance(found[0], ast.Yield) and found[0] in plain


def _start(loop: RankLoop) -> int:
    made = loop.over.made_by("builtins.enumerate") if loop.over is not None else None
    start = made.call.arg(1, "start") if made is not None and made.call is not None else None
    return start.constant if start is not None and isinstance(start.constant, int) else 0
