"""Conditions that surely hold in some round of the loops around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks.model import RankGuard, RankLoop


def holds_once(guards: tuple[RankGuard, ...], loops: tuple[RankLoop, ...]) -> bool:
    """Whether conditions surely hold in some round: they are known, or ask for the round."""
    rounds = {name for loop in loops for name in _counters(loop.node)}
    return all(
        guard.starts_script
        or guard.test.known
        or any(isinstance(n, ast.Name) and n.id in rounds for n in ast.walk(guard.node))
        for guard in guards
    )


def _counters(loop: ast.AST) -> Iterator[str]:
    """The names that count the rounds of a loop."""
    if not isinstance(loop, ast.For):
        return
    over, target = ast.unparse(loop.iter), loop.target
    if isinstance(target, ast.Tuple) and "enumerate(" in over:
        target = target.elts[0]
    if isinstance(target, ast.Name) and ("range(" in over or "enumerate(" in over):
        yield target.id
