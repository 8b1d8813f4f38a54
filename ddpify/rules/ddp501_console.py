"""DDP501: every rank prints."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.effects import EffectKind
from ddpify.facts.model import Facts
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.effects import gated
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per console statement that all ranks run."""
    message = "every rank would print this line"
    yield from gated(facts, "DDP501", (EffectKind.CONSOLE,), message, Severity.WARNING)


RULE = Rule(
    "DDP501",
    "console-on-every-rank",
    "N processes share one terminal: each line appears N times, interleaved, and numbers of"
    " different ranks cannot be told apart.",
    "timm#1309; BUGS M07",
    check,
)
