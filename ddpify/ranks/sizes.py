"""The number of processes. Two are read, but the program may be started with more: what follows
from their number is known for each, and a condition is decided where it is for all of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

# Enough that a program which asks for a number of processes asks for one of these.
_WORLDS: Final = (*range(2, 130), 160, 192, 256, 384, 512, 768, 1024, 2048, 4096, 65536)


class Sized:
    """A constant that another number of processes would change; itself it is that of two."""

    worlds: tuple[Any, ...] = ()  # what it is with each number of processes


class _SizedInt(Sized, int):
    pass


class _SizedFloat(Sized, float):
    pass


class _SizedText(Sized, str):
    pass


_KINDS: Final[dict[type, Callable[[Any], Any]]] = {
    int: _SizedInt,
    float: _SizedFloat,
    str: _SizedText,
}


def world_size(kind: type = int) -> Any:
    """The number of processes, as a number or (in the environment) as a text."""
    return _sized(tuple(map(kind, _WORLDS)))


def is_world_size(atom: Any) -> bool:
    """Whether a constant is the number of processes, whatever that is."""
    return isinstance(atom, Sized) and atom.worlds == _WORLDS


def in_worlds(function: Callable[..., Any], *atoms: Any) -> tuple[Any, ...]:
    """``function`` of constants, with each number of processes; one result if none matters."""
    if not any(isinstance(atom, Sized) for atom in atoms):
        return (function(*atoms),)
    held = [a.worlds if isinstance(a, Sized) else (a,) * len(_WORLDS) for a in atoms]
    return tuple(function(*one) for one in zip(*held, strict=True))


def apply(function: Callable[..., Any], *atoms: Any) -> Any:
    """``function`` of constants. Raises ValueError where that is zero only with some numbers of
    processes, two among them; a share that is none with too many of them is taken as one."""
    return _sized(in_worlds(function, *atoms))


def _sized(worlds: tuple[Any, ...]) -> Any:
    first = worlds[0]
    if all(one == first for one in worlds):
        return first
    if type(first) not in _KINDS or not first:
        raise ValueError(worlds)
    made = _KINDS[type(first)](first)
    made.worlds = worlds
    return made


def never_all(number: int) -> bool:
    """Whether a number is that of the processes with no number of them."""
    return all(in_worlds(operator.ne, number, world_size()))


def with_two(atom: Any) -> Any:
    """The constant with two processes."""
    return atom.worlds[0] if isinstance(atom, Sized) else atom


def condition(truths: tuple[bool, ...]) -> tuple[str, bool]:
    """A name for the numbers of processes with which a condition holds or, if False comes with it,
    does not hold."""
    turns = [
        n for n, one, before in zip(_WORLDS[1:], truths[1:], truths, strict=False) if one != before
    ]
    return f"processes:{','.join(map(str, turns))}", truths[0]


def with_so_many(atom: Any, number: int) -> Any:
    """The constant with another number of processes."""
    return atom.worlds[_WORLDS.index(number)] if isinstance(atom, Sized) else atom
