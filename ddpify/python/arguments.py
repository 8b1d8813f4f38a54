"""How the arguments of a call meet the parameters of a function."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True)
class Bound(Generic[V]):
    """What each parameter is given; ``rest`` and ``keywords`` go to ``*args`` and ``**kwargs``.

    ``missing`` are the parameters that have to take their default.
    """

    given: dict[str, V]
    missing: tuple[str, ...]
    rest: tuple[V, ...]
    keywords: dict[str, V]


def bind(spec: ast.arguments, args: Sequence[V], kwargs: Mapping[str, V]) -> Bound[V]:
    """What a call gives to each parameter.

    ``def f(a, /, b, *, c, **rest)`` called as ``f(1, 2, c=3, a=4)``: ``a`` is 1, and ``rest`` is
    ``{"a": 4}``.
    """
    only = [a.arg for a in spec.posonlyargs]
    names = [*only, *(a.arg for a in spec.args)]
    given = dict(zip(names, args, strict=False))
    left = dict(kwargs)
    for name in (*names[len(only) :], *(a.arg for a in spec.kwonlyargs)):
        if name in left:
            given[name] = left.pop(name)
    every = (*names, *(a.arg for a in spec.kwonlyargs))
    missing = tuple(name for name in every if name not in given)
    return Bound(given, missing, tuple(args[len(names) :]), left)


def defaults(
    spec: ast.arguments, positional: Sequence[V], keyword: Sequence[V | None]
) -> dict[str, V]:
    """The default of each parameter that has one; those of ``spec`` in order, evaluated."""
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    found = dict(zip(names[len(names) - len(positional) :], positional, strict=True))
    for parameter, value in zip(spec.kwonlyargs, keyword, strict=True):
        if value is not None:
            found[parameter.arg] = value
    return found
