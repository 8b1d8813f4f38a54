"""Which element of a sequence each target of an unpacking takes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TargetPart:
    """The part that one target takes: the element at ``start``, or all from there to ``end``.

    ``end`` counts from the back: ``a, *b, c = …`` gives ``b`` everything from 1 to 1 before the
    end, and ``c`` the element at -1.
    """

    target: ast.AST
    start: int
    end: int | None = None


def places(targets: Sequence[ast.AST]) -> list[TargetPart]:
    """The place of each target; patterns of ``match`` are targets, too."""
    star = next((i for i, one in enumerate(targets) if _starred(one)), None)
    if star is None:
        return [TargetPart(target, index) for index, target in enumerate(targets)]
    behind = len(targets) - star - 1
    first = [TargetPart(target, index) for index, target in enumerate(targets[:star])]
    last = [TargetPart(one, index - behind) for index, one in enumerate(targets[star + 1 :])]
    return [*first, TargetPart(targets[star], star, behind), *last]


def _starred(node: ast.AST) -> bool:
    return isinstance(node, (ast.Starred, ast.MatchStar))
