"""Conditions on a batch's mean that all ranks ask of the whole batch, as one process did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.model import Facts
from ddpify.rules.base import Finding, How, Severity
from ddpify.rules.edits import edit


def agreed(facts: Facts) -> Iterable[Finding]:
    """Yield one finding per such condition: one reduction in each step that comes to it."""
    return _asked(facts, False, "DDP404", "ranks that disagree hang", "decides whether this runs")


def agreed_terms(facts: Facts) -> Iterable[Finding]:
    """Yield one finding per such condition that says which terms a loss has."""
    what = "ranks that disagree average the gradients of two losses"
    return _asked(facts, True, "DDP401", what, "decides what this is of")


def _asked(facts: Facts, terms: bool, code: str, what: str, decides: str) -> Iterator[Finding]:
    for one in facts.agreements:
        if one.terms is terms:
            yield Finding(
                code,
                one.site,
                f"each rank would decide this from its own samples; {what}",
                Severity.ERROR,
                tuple(edit(facts, How.REPLACE, site, "reduce_mean({})") for site in one.means),
                "",
                ((one.decides, decides),),
            )
