"""The checks, in the order of the report: each reads the evidence and yields one line of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ddpify.verify.checks.check_checkpoints import checkpoints
from ddpify.verify.checks.check_collectives import collectives
from ddpify.verify.checks.check_completed import completed
from ddpify.verify.checks.check_contents import contents
from ddpify.verify.checks.check_evaluation import evaluation
from ddpify.verify.checks.check_files import files_once
from ddpify.verify.checks.check_measurements import overfit, speed
from ddpify.verify.checks.check_output import console_once, metrics
from ddpify.verify.checks.check_probe import probe
from ddpify.verify.checks.check_samples import samples
from ddpify.verify.checks.check_sharding import sharding
from ddpify.verify.checks.check_training import (
    gradients,
    learning_rates,
    loss,
    ranks_identical,
    steps,
    trajectory,
)
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.evidence import Evidence
from ddpify.verify.verdict import Check

ALL: Final[tuple[Callable[[Comparison], Check], ...]] = (
    completed,
    samples,
    contents,
    steps,
    learning_rates,
    gradients,
    trajectory,
    loss,
    ranks_identical,
    probe,
    metrics,
    files_once,
    console_once,
    checkpoints,
    collectives,
    evaluation,
    overfit,
    speed,
)


def run_checks(evidence: Evidence) -> tuple[Check, ...]:
    """All of them, whatever is missing in the evidence; what is of FSDP only where it shards."""
    comparison = Comparison(evidence)
    checks = (*ALL, sharding) if comparison.groups else ALL
    return tuple(check(comparison) for check in checks)
