"""The order in which the attributes of a class are looked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

C = TypeVar("C")


def linearised(cls: C, bases: Callable[[C], Sequence[C]]) -> list[C]:
    """The class and those it inherits from, as Python orders them (C3); depth first where it
    would refuse them."""
    held = list(dict.fromkeys(bases(cls)))
    if cls in held:
        return [cls]
    todo = [linearised(base, bases) for base in held] + [held]
    return [cls, *_merged([list(one) for one in todo])]


def _merged(lists: list[list[C]]) -> list[C]:
    found: list[C] = []
    while lists := [one for one in lists if one]:
        heads = (one[0] for one in lists)
        head = next((h for h in heads if not any(h in one[1:] for one in lists)), None)
        if head is None:
            return list(dict.fromkeys([*found, *(c for one in lists for c in one)]))
        found.append(head)
        lists = [[c for c in one if c is not head] for one in lists]
    return found
