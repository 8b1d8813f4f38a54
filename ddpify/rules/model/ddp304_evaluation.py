"""DDP304: evaluation goes through the wrapper."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, PROJECT, SINGLE, changed, marked
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per expression that carries the wrapper into evaluation."""
    for site, forward in facts.unwraps:
        yield Finding(
            "DDP304",
            site,
            "evaluation through the wrapper synchronises buffers",
            Severity.ERROR,
            (edit(facts, How.REPLACE, site, "unwrap({})"),),
            because=((forward.call.site, "called here outside the gradient path"),),
        )


RULE = Rule(
    "DDP304",
    "evaluation-through-wrapper",
    "The wrapper broadcasts buffers in its first forward and in each that follows one with"
    " gradients: in eval mode in every one, under no_grad in the first of an evaluation (measured)."
    " One rank alone, or ranks with different batch counts where gradients are on, then hang or"
    " read a wrong collective; the inner module communicates nothing.",
    "pytorch#54059, #53979; BUGS C06; PATTERNS B2.15-16",
    check,
    bad=(
        changed(
            PROJECT, ("score(unwrap(brain), hold, place)", "score(brain, hold, place)  # DDP304")
        ),
        marked(SINGLE, "DDP304", "accuracy(net, holdout))"),
    ),
    good=CORRECT,
)
