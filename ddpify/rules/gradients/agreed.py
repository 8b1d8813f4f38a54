"""Conditions on a batch's mean that all ranks ask of the whole batch, as one process did."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.rules.base import Finding, How, Severity
from ddpify.rules.edits import edit


def agreed(facts: Facts) -> Iterable[Finding]:
    """Yield one finding per such condition: one reduction in each step that comes to it."""
    for one in facts.agreements:
        yield Finding(
            "DDP404",
            one.site,
            "each rank would decide this from its own samples; ranks that disagree hang",
            Severity.ERROR,
            tuple(edit(facts, How.REPLACE, site, "reduce_mean({})") for site in one.means),
            "",
            ((one.decides, "decides whether this runs"),),
        )
