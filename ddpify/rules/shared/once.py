"""Conditions that surely hold in some round of the loops around them."""

from __future__ import annotations

from ddpify.ranks.run import Run
from ddpify.rules.shared.windows import Moment, window


def holds_once(run: Run, one: Moment) -> bool:
    """Whether what is around it surely holds in some round: it is known, or asks for the round."""
    left = [g for g in one.guards if not g.starts_script and not g.test.known]
    for loop in one.loops:
        rounds = window(run, loop, [guard.test for guard in left], 0)
        if rounds is not None and rounds.decides(one):
            if all(rounds.happens(one, n) is not True for n in rounds.numbers):
                return False
            left = [guard for guard in left if not rounds.counts(guard)]
    return not left
