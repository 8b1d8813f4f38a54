"""Measured, not compared: how much of the model each rank keeps, where FSDP shards it."""

from __future__ import annotations

from ddpify.verify.checks.base import skipped
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.recording import HeldRecord
from ddpify.verify.verdict import Check, Verdict

_NAME, _TITLE = "sharding", "held by a rank"
_MEBIBYTE = 2**20


def sharding(c: Comparison) -> Check:
    """Between steps; in a forward there are the weights of the group that computes, too."""
    one, ranks = c.one.held, [run.held for run in c.ranks]
    if one is None or not all(ranks):
        return skipped(_NAME, _TITLE, "no optimizer step was taken by every run")
    held = [each for each in ranks if each is not None]
    most = max(held, key=lambda each: each.total)
    measured = f"at most {_parts(most, one)} of one process; 1/{c.nproc} is {1 / c.nproc:.3f}"
    details = (_row("one process", one), *(_row(f"rank {n}", each) for n, each in enumerate(held)))
    return Check(_NAME, _TITLE, Verdict.INFO, measured, details)


def _parts(held: HeldRecord, one: HeldRecord) -> str:
    parts = (f"{name} {own / whole:.3f}" for name, own, whole in _pairs(held, one) if whole)
    return f"{held.total / max(one.total, 1):.3f} ({', '.join(parts)})"


def _pairs(held: HeldRecord, one: HeldRecord) -> tuple[tuple[str, int, int], ...]:
    return (
        ("parameters", held.parameters, one.parameters),
        ("gradients", held.gradients, one.gradients),
        ("optimizer", held.states, one.states),
    )


def _row(who: str, held: HeldRecord) -> str:
    parts = (f"{name} {own / _MEBIBYTE:.3f}" for name, own, _ in _pairs(held, held))
    return f"{who}: {', '.join(parts)} MiB"
