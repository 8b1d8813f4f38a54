"""The order in which a class's bases are looked through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

C = TypeVar("C")


def linearized(start: C, bases: Callable[[C], Sequence[C]], depth: int = 20) -> list[C]:
    """The method resolution order (C3); bases that contradict each other come depth first.

    ``class D(B, C)`` where both inherit ``A``: D, B, C, A.
    """
    above = [one for one in bases(start) if one is not start] if depth else []
    lines = [linearized(one, bases, depth - 1) for one in above]
    merged = _merged([*lines, list(above)])
    if merged is None:
        merged = list(dict.fromkeys(one for line in lines for one in line))
    return [start, *(one for one in merged if one is not start)]


def _merged(lines: list[list[C]]) -> list[C] | None:
    found: list[C] = []
    lines = [list(line) for line in lines if line]
    while lines:
        heads = (line[0] for line in lines)
        head = next((h for h in heads if not any(h in line[1:] for line in lines)), None)
        if head is None:
            return None
        found.append(head)
        lines = [[one for one in line if one is not head] for line in lines]
        lines = [line for line in lines if line]
    return found
