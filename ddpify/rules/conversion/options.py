"""Options that say how a model is sharded, where a program says so itself, or they are not there.

A conversion changes what is written: an option that it does not follow is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.facts.model import Facts
from ddpify.rules.base import Finding
from ddpify.rules.conversion.code import NoCounterpart
from ddpify.settings import Settings

_WRITTEN: Final = """fsdp_wrap fsdp_bf16 fsdp_offload fsdp_hybrid fsdp_recompute fsdp_reshard
    fsdp_min_params""".split()
_NOT_THERE: Final = ("fsdp_meta", "checkpoint")


def not_followed(facts: Facts, settings: Settings) -> Iterator[Finding]:
    """One finding per option that is given, and does nothing here."""
    plain = Settings()
    for name in (*_NOT_THERE, *(() if facts.replicas else _WRITTEN)):
        if getattr(settings, name) == getattr(plain, name):
            continue
        why = "is not there for programs that are distributed already"
        if name in _WRITTEN:
            why = "is what the program says itself of its FSDP1"
        flag = name.replace("_", "-")
        yield NoCounterpart(
            facts.entry.site, f"{flag} {why}", "leave it out, then run again"
        ).finding
