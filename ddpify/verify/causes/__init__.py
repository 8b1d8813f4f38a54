"""Why checks failed, in the words of the rules; nothing where nothing is recognised.

A reader looks at one side of the evidence. To add a cause, add it to the reader it belongs to, or
a reader to ``READERS``, at the place that says how early it comes in the course of a run: what
comes first is what the rest follows from.
"""

from __future__ import annotations

from typing import Final

from ddpify.verify.causes.base import Case, Reader
from ddpify.verify.causes.crash import crash
from ddpify.verify.causes.data import data
from ddpify.verify.causes.desync import desync
from ddpify.verify.causes.effects import checkpoints, cleanup, console, evaluation, files
from ddpify.verify.causes.training import training
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.evidence import Evidence
from ddpify.verify.verdict import Cause, Check

READERS: Final[tuple[Reader, ...]] = (
    crash,
    desync,
    data,
    training,
    evaluation,
    files,
    checkpoints,
    console,
    cleanup,
)


def diagnose(evidence: Evidence, checks: tuple[Check, ...]) -> tuple[Cause, ...]:
    """The likeliest first, each rule once."""
    case = Case(Comparison(evidence), checks)
    found: dict[str, Cause] = {}
    for reader in READERS:
        for cause in reader(case):
            found.setdefault(cause.rule, cause)
    return tuple(found.values())
