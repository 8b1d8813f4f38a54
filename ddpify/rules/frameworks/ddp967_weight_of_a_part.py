"""DDP967: Lightning averages how many samples the processes have, and rounds that down."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import FED
from ddpify.rules.frameworks.lightnings import logs, several
from ddpify.rules.frameworks.weighing import is_rounded, weighed


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per mean of an evaluation that is reduced so."""
    if not several(run):
        return
    for call in logs(run):
        synced = call.kwargs.get("sync_dist")
        if synced is None or synced.constant is False or not is_rounded(run, call):
            continue
        fix = weighed(run, call)
        yield Finding(
            "DDP967",
            call.site,
            "the mean over N processes is of a number of samples that is rounded: each counts as"
            " many as all have together, divided by N",
            Severity.WARNING,
            fix,
            "" if fix else "give it batch_size=self.trainer.world_size * the batch's samples",
        )


_WEIGHT: Final = ", batch_size=self.trainer.world_size * extract_batch_size(batch))"

RULE = Rule(
    "DDP967",
    "rounded-number-of-samples",
    "self.log(…, sync_dist=True) divides the sum of a number over all samples by how many there"
    " are. Lightning 2.6 averages that number over the processes as a whole one, rounded down: with"
    " 149 and 148 samples it divides by 296 (measured: val/loss 1.0949, not 1.0913).",
    "lightning/pytorch/trainer/connectors/logger_connector/result.py; docs/lightning.md",
    lint=lint,
    bad=(
        changed(FED, (_WEIGHT, ")  # DDP967")),
        changed(FED, (_WEIGHT, ', reduce_fx="mean", batch_size=len(x))  # DDP967')),
    ),
    good=(FED, changed(FED, (_WEIGHT, ', reduce_fx="sum")'))),
    severity=Severity.WARNING,
)
