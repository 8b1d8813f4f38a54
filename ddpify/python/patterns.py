"""What starred targets and the patterns of ``match`` bind, for any kind of value."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

V = TypeVar("V")


class Parts(Protocol[V]):
    """What a reader knows of a value's parts."""

    def elements(self, value: V) -> Sequence[V] | None:
        """The elements of a sequence, if all are known."""

    def element(self, value: V, number: int) -> V:
        """An element of a sequence of which they are not known."""

    def gathered(self, value: V, elements: Sequence[V] | None) -> V:
        """A list of some elements of ``value``; of any of them where they are not known."""

    def entry(self, value: V, key: ast.expr) -> V:
        """``value[key]`` of a mapping."""

    def others(self, value: V, keys: Sequence[ast.expr]) -> V:
        """The mapping without these entries."""

    def attribute(self, value: V, name: str, pattern: ast.pattern) -> V:
        """``value.name``."""

    def places(self, cls: ast.expr) -> Sequence[str]:
        """The attributes that a class pattern's parts by position mean: ``__match_args__``."""


class Tests(Parts[V], Protocol[V]):
    """And what it can say of a condition."""

    def equals(self, value: V, other: ast.expr) -> V:
        """``value == other``."""

    def is_constant(self, value: V, constant: object) -> V:
        """``value is None`` and the like."""

    def all_of(self, tests: Sequence[V]) -> V:
        """Whether all hold."""

    def any_of(self, tests: Sequence[V]) -> V:
        """Whether one of the matches holds."""

    def unknown(self, value: V, pattern: ast.pattern) -> V:
        """A test of which nothing is known but what it asks."""

    def said(self, answer: bool) -> V:
        """A test of which the answer is known."""


def spread(
    parts: Parts[V], value: V, before: int, after: int | None
) -> tuple[list[V], V | None, list[V]]:
    """The elements that targets get: those before a star, what the star takes, those after it.

    ``after`` is None where there is no star: ``spread(parts, (1, 2, 3), 1, 1)`` is
    ``[1], [2], [3]``.
    """
    known = parts.elements(value)
    wanted = before + (after or 0)
    fits = known is not None and (
        len(known) >= wanted if after is not None else len(known) == before
    )
    if known is None or not fits:
        heads = [parts.element(value, number) for number in range(before)]
        tails = [parts.element(value, before + number) for number in range(after or 0)]
        return heads, None if after is None else parts.gathered(value, None), tails
    if after is None:
        return list(known), None, []
    end = len(known) - after
    return list(known[:before]), parts.gathered(value, known[before:end]), list(known[end:])


def unpacked(
    parts: Parts[V], targets: Sequence[ast.expr], value: V
) -> Iterator[tuple[ast.expr, V]]:
    """What each target of ``a, *b, c = value`` gets."""
    star = next((n for n, one in enumerate(targets) if isinstance(one, ast.Starred)), None)
    if star is None:
        heads, _, _ = spread(parts, value, len(targets), None)
        yield from zip(targets, heads, strict=True)
        return
    heads, middle, tails = spread(parts, value, star, len(targets) - star - 1)
    starred = targets[star]
    assert isinstance(starred, ast.Starred)
    yield from zip(targets[:star], heads, strict=True)
    if middle is not None:
        yield starred.value, middle
    yield from zip(targets[star + 1 :], tails, strict=True)


def captured(parts: Parts[V], pattern: ast.pattern, value: V) -> Iterator[tuple[str, V]]:
    """The names that a pattern binds where it matches, each with what it gets."""
    if isinstance(pattern, ast.MatchAs):
        if pattern.pattern is not None:
            yield from captured(parts, pattern.pattern, value)
        if pattern.name is not None:
            yield pattern.name, value
    elif isinstance(pattern, ast.MatchOr):
        for one in pattern.patterns:
            yield from captured(parts, one, value)
    elif isinstance(pattern, ast.MatchMapping) and pattern.rest is not None:
        yield pattern.rest, parts.others(value, pattern.keys)
    for inner, part in below(parts, pattern, value):
        if not isinstance(inner, ast.MatchStar):
            yield from captured(parts, inner, part)
        elif inner.name is not None:
            yield inner.name, part


def below(parts: Parts[V], pattern: ast.pattern, value: V) -> Iterator[tuple[ast.pattern, V]]:
    """The patterns in a pattern, each with the part of the value that it is for."""
    if isinstance(pattern, ast.MatchSequence):
        yield from _in_sequence(parts, pattern.patterns, value)
    elif isinstance(pattern, ast.MatchMapping):
        for key, inner in zip(pattern.keys, pattern.patterns, strict=True):
            yield inner, parts.entry(value, key)
    elif isinstance(pattern, ast.MatchClass):
        names = list(parts.places(pattern.cls))[: len(pattern.patterns)]
        unknown = len(pattern.patterns) - len(names)
        for name, inner in zip(names, pattern.patterns, strict=False):
            yield inner, parts.attribute(value, name, inner)
        for number in range(unknown):  # `case int(x)`: the value itself
            yield pattern.patterns[len(names) + number], value
        for name, inner in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
            yield inner, parts.attribute(value, name, inner)


def _in_sequence(
    parts: Parts[V], patterns: Sequence[ast.pattern], value: V
) -> Iterator[tuple[ast.pattern, V]]:
    star = next((n for n, one in enumerate(patterns) if isinstance(one, ast.MatchStar)), None)
    before = len(patterns) if star is None else star
    after = None if star is None else len(patterns) - star - 1
    heads, middle, tails = spread(parts, value, before, after)
    yield from zip(patterns[:before], heads, strict=True)
    if star is not None and middle is not None:
        yield patterns[star], middle
        yield from zip(patterns[star + 1 :], tails, strict=True)


def test(tests: Tests[V], pattern: ast.pattern, value: V) -> V:
    """Whether a pattern matches."""
    if isinstance(pattern, ast.MatchValue):
        return tests.equals(value, pattern.value)
    if isinstance(pattern, ast.MatchSingleton):
        return tests.is_constant(value, pattern.value)
    if isinstance(pattern, ast.MatchOr):
        return tests.any_of([test(tests, one, value) for one in pattern.patterns])
    if isinstance(pattern, ast.MatchAs):
        if pattern.pattern is None:
            return tests.said(True)
        return test(tests, pattern.pattern, value)
    if isinstance(pattern, ast.MatchSequence) and not _fits(tests, pattern.patterns, value):
        return tests.said(False)
    parts = [
        test(tests, inner, part)
        for inner, part in below(tests, pattern, value)
        if not isinstance(inner, ast.MatchStar)
    ]
    exact = isinstance(pattern, ast.MatchSequence) and tests.elements(value) is not None
    return tests.all_of(parts if exact else [tests.unknown(value, pattern), *parts])


def _fits(tests: Tests[V], patterns: Sequence[ast.pattern], value: V) -> bool:
    """Whether a sequence may have as many elements as a pattern asks for."""
    known = tests.elements(value)
    if known is None:
        return True
    starred = any(isinstance(one, ast.MatchStar) for one in patterns)
    return len(known) >= len(patterns) - 1 if starred else len(known) == len(patterns)
