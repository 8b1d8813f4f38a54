"""What a migration changes, by kind: which rules, in how many places, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from ddpify.report.hunks import FileDiff

# The first digit of a code, in words.
_KINDS: Final = {
    "0": "project",
    "1": "processes",
    "2": "data",
    "3": "model",
    "4": "gradients",
    "5": "output",
    "6": "checkpoints",
    "7": "numbers",
    "8": "collectives",
    "9": "sharding",
}


@dataclass(frozen=True)
class Reason:
    """One rule: in how many hunks its edits are, and the first of its reasons."""

    rule: str
    hunks: int
    why: str

    @property
    def kind(self) -> str:
        """What the rule is about, in a word."""
        return _KINDS.get(self.rule[-3:-2], "")


def reasons(diffs: Iterable[FileDiff]) -> Iterator[Reason]:
    """The rules in the order of their codes."""
    hunks: dict[str, int] = {}
    found: dict[str, list[str]] = {}
    for hunk in (hunk for diff in diffs for hunk in diff.hunks):
        own = {(planned.rule, planned.reason) for planned in hunk.edits}
        for rule in {rule for rule, _ in own}:
            hunks[rule] = hunks.get(rule, 0) + 1
        for rule, reason in sorted(own):
            known = found.setdefault(rule, [])
            known += [reason] if reason not in known else []
    for rule in sorted(hunks):
        first, *others = found[rule]
        yield Reason(rule, hunks[rule], f"{first} (and {len(others)} more)" if others else first)


def lines(diffs: Iterable[FileDiff]) -> Iterator[str]:
    """``data  DDP202  2  each rank would train on all samples``; a kind is said once."""
    wide = max(map(len, _KINDS.values()))
    for kind, group in groupby(reasons(diffs), key=lambda one: one.kind):
        for n, one in enumerate(group):
            yield f"{'' if n else kind:{wide}}  {one.rule}  {one.hunks:>3}  {one.why}"
