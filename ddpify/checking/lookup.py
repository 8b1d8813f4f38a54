"""A rule by what somebody has at hand: its code, the number in it, its name, or nearly one."""

from __future__ import annotations

import difflib

from ddpify.checking.catalogue import catalogue
from ddpify.rules.base import Rule

_MOST = 5  # that are suggested


def looked_up(said: str | None) -> tuple[Rule, ...]:
    """The one rule that is meant, if it is clear which; all, where nothing is said.

    The beginning of a name counts where it is that of one rule only.
    """
    rules = catalogue()
    if said is None:
        return rules
    word = said.strip().lower()
    exact = [one for one in rules if word in (one.id.lower(), one.id.lower()[3:], one.name)]
    begins = [one for one in rules if len(word) > 1 and one.name.startswith(word)]
    found = exact or begins
    return tuple(found) if len(found) == 1 else ()


def suggested(said: str) -> tuple[str, ...]:
    """Rules that may have been meant, each with its name."""
    word = said.strip().lower()
    rules = {name: one for one in catalogue() for name in (one.id.lower(), one.name)}
    digits = f"ddp{word}" if word.isdigit() else word
    begin = [rules[name] for name in rules if word and name.startswith((word, digits))]
    inside = [one for name, one in rules.items() if len(word) > 2 and word in name]
    alike = [rules[name] for name in difflib.get_close_matches(word, rules, n=3, cutoff=0.7)]
    # a rule has no hash that is cheap: its code stands for it
    found = {one.id: one for one in begin or inside or alike}
    return tuple(f"{one.id} {one.name}" for one in list(found.values())[:_MOST])
