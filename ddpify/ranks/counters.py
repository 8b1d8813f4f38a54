"""Numbers that a program counts itself, one by one: ``sent += 1`` in each round of its loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ddpify.ranks.carried import LoopNode
from ddpify.ranks.model import RankValue
from ddpify.ranks.modules import Module
from ddpify.ranks.values import Turn
from ddpify.source import Site

_ROUND, _ROUNDS = "round@", "rounds@"


@dataclass(frozen=True)
class CountedNumber(Turn):
    """``first`` in the first round of ``loops`` (outermost first), and ``step`` more in each round
    of the innermost, whatever that does."""

    first: int = field(default=0, compare=False, repr=False)
    step: int = field(default=0, compare=False, repr=False)
    loops: tuple[Site, ...] = field(default=(), compare=False, repr=False)
    __hash__ = Turn.__hash__

    def number(self, known: Mapping[str, int | None]) -> int | None:
        """What it is where the loops are in some round: ``in_round``."""
        done = 0
        for loop in self.loops:
            at, number = known.get(f"{_ROUND}{loop}"), known.get(f"{_ROUNDS}{loop}")
            if at is None or number is None:
                return None
            done = done * number + at
        return self.first + self.step * done


def in_round(loop: Site, at: int, number: int) -> dict[str, int]:
    """That a loop is in some of so many rounds."""
    return {f"{_ROUND}{loop}": at, f"{_ROUNDS}{loop}": number}


def forgotten(module: Module, node: LoopNode, name: str, value: RankValue) -> Turn:
    """What a constant is in a loop that changes it."""
    key, first = f"{name}@{module.path}:{node.lineno}", value.atoms[0]
    below = [one for statement in node.body for one in ast.walk(statement)]
    stored = [one for one in below if isinstance(one, ast.Name) and one.id == name]
    once = len([one for one in stored if isinstance(one.ctx, ast.Store)]) == 1
    skips = any(isinstance(one, (ast.Break, ast.Continue)) for one in below)
    if type(first) is int and once and not skips:
        for step, loops in _increments(name, node):
            return CountedNumber(key, (), first, step, tuple(map(module.site, loops)))
    return Turn(key)


def _increments(name: str, loop: ast.AST) -> Iterator[tuple[int, tuple[ast.AST, ...]]]:
    """What each round adds, and the loops down to there."""
    for statement in loop.body if isinstance(loop, (ast.For, ast.AsyncFor)) else ():
        step = _added(name, statement)
        if step is not None:
            yield step, (loop,)
        yield from ((step, (loop, *inner)) for step, inner in _increments(name, statement))


def _added(name: str, statement: ast.stmt) -> int | None:
    """``1`` of ``name += 1`` and ``name = name + 1``."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        made = statement.value
        left, right, operator = made.left, made.right, made.op
    elif isinstance(statement, ast.AugAssign):
        left, right, operator = statement.target, statement.value, statement.op
    else:
        return None
    number = right.value if isinstance(right, ast.Constant) else None
    counts = isinstance(operator, ast.Add) and isinstance(left, ast.Name) and left.id == name
    return number if counts and type(number) is int else None
