"""Findings by cause: what is said of several places in the same words is one finding of them all.

Each place stays a finding of its own for comments, settings, fixes and the cache; readers of a
report see one, with its places.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddpify.rules.base import Finding

_OF_LAUNCHERS = ("DDP002", "DDP003")  # one way to start programs, in however many scripts


@dataclass(frozen=True)
class FindingCause:
    """A finding, and the further places of which the same is to be said."""

    first: Finding
    others: tuple[Finding, ...] = ()

    @property
    def all(self) -> tuple[Finding, ...]:
        """One for each place."""
        return (self.first, *self.others)

    @property
    def elsewhere(self) -> str:
        """The further places: ``lines 12, 30``, or with their files; "" if there are none."""
        by_path: dict[str, dict[int, None]] = {}
        for one in self.others:
            by_path.setdefault(one.site.path, {})[one.site.span.line] = None
        if not by_path:
            return ""
        if list(by_path) == [self.first.site.path]:
            lines = by_path[self.first.site.path]
            return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
        listed = (f"{path}:{', '.join(map(str, lines))}" for path, lines in by_path.items())
        return "; ".join(listed)


def causes(findings: Iterable[Finding]) -> tuple[FindingCause, ...]:
    """In the order of their first places."""
    found: dict[object, list[Finding]] = {}
    for one in findings:
        found.setdefault(_key(one), []).append(one)
    return tuple(FindingCause(first, tuple(others)) for first, *others in found.values())


def _key(one: Finding) -> object:
    """What proves it; without proof what is said, in one file."""
    said: object = one.because or (one.message, one.site.path)
    if one.rule in _OF_LAUNCHERS:
        said = one.message
    return one.rule, one.severity, one.advice, bool(one.fix), said
