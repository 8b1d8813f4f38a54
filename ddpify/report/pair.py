"""Which of a rule's examples are shown: a wrong and a right program that differ in the bug."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from ddpify.names import CORE, METRICS
from ddpify.rules.base import Example, Rule

_HELPERS = (CORE, METRICS)
NEAR = 4  # lines in which two programs may differ and still be one with and without the bug
_MARK = re.compile(r"[ \t]*# DDP\d{3}\b.*$")


@dataclass(frozen=True)
class ShownPair:
    """A wrong program and a right one, as near to each other as the rule's examples are."""

    wrong: Example
    right: Example

    @property
    def lines(self) -> int:
        """In how many lines they differ; empty ones and the marks do not count."""
        texts = [*_lines(self.wrong)], [*_lines(self.right)]
        matcher = SequenceMatcher(None, *texts, autojunk=False)
        changed = (one for one in matcher.get_opcodes() if one[0] != "equal")
        return sum(max(last - first, end - begin) for _, first, last, begin, end in changed)


def pair(rule: Rule) -> ShownPair | None:
    """The pair that a reader is shown; None for a rule without examples."""
    pairs = (ShownPair(wrong, right) for wrong in rule.bad for right in rule.good)
    return min(pairs, key=_rank, default=None)


def unmarked(text: str) -> str:
    """The program without the marks that say where the rule reports."""
    return "\n".join(_MARK.sub("", line) for line in text.strip("\n").split("\n"))


def _rank(one: ShownPair) -> tuple[bool, bool, int]:
    """Near pairs first; of those, ones that people write by hand."""
    by_hand = _by_hand(one.wrong) and _by_hand(one.right)
    return one.lines > NEAR, not by_hand, one.lines


def _by_hand(example: Example) -> bool:
    return not any(name in text for _, text in example.files for name in _HELPERS)


def _lines(example: Example) -> Iterator[str]:
    for name, text in example.files:
        yield from (name, *filter(None, unmarked(text).split("\n")))
