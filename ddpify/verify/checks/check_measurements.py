"""Measured, not compared: does it learn, and what do N processes bring."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from ddpify.verify.checks.base import result, skipped
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.recording import RunRecord
from ddpify.verify.verdict import Check, Verdict

_OVERFIT = "overfits a tiny subset"
_SPEED = "speed"
_MEBIBYTE = 2**20


def overfit(c: Comparison) -> Check:
    name = "overfit"
    if not c.evidence.options.overfit:
        return skipped(name, _OVERFIT, "only with --overfit")
    runs = {"one process": [_loss(step.losses) for step in c.one.steps]}
    runs[f"{c.nproc} ranks"] = [
        fmean(_loss(run.steps[n].losses) for run in c.ranks) for n in range(c.common_steps)
    ]
    if any(len(losses) < 2 for losses in runs.values()):
        return skipped(name, _OVERFIT, "fewer than two optimizer steps")
    ends = {who: _ends(losses) for who, losses in runs.items()}
    wrong = not all(last < first / 2 for first, last in ends.values())
    measured = "; ".join(f"{who} {first:.4g} → {last:.4g}" for who, (first, last) in ends.items())
    details = ("the last tenth of the steps is not below half of the first",) if wrong else ()
    return result(name, _OVERFIT, wrong, measured, details)


def speed(c: Comparison) -> Check:
    if not c.finished:
        return skipped("speed", _SPEED, "not all ranks came to their end")
    if not c.common_steps:
        return skipped("speed", _SPEED, "no optimizer step was taken by every run")
    one = _seconds(c.one)
    many = max(map(_seconds, c.ranks))
    memory = f"peak memory {_peak((c.one,))} and {_peak(c.ranks)} MiB"
    times = f"{_shown(one)} per step, {_shown(many)} on {c.nproc} ranks"
    if not many:
        return Check("speed", _SPEED, Verdict.INFO, times, (memory,))
    gain = one / many
    measured = f"{times}: speed-up {gain:.2f}, efficiency {gain / c.nproc:.0%}"
    kind = f"computed in {c.evidence.options.dtype} on {c.one.device} of this machine"
    return Check("speed", _SPEED, Verdict.INFO, measured, (f"{memory} per process", kind))


def _seconds(run: RunRecord) -> float:
    """The median; the first steps load, compile and warm up."""
    every = [step.seconds for step in run.steps]
    first = min(len(every) // 5, 10)
    return median(every[first:])


def _shown(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _peak(runs: Sequence[RunRecord]) -> str:
    return f"{max(step.memory for run in runs for step in run.steps) / _MEBIBYTE:.0f}"


def _loss(losses: Sequence[float]) -> float:
    return sum(losses) if losses else float("nan")


def _ends(losses: Sequence[float]) -> tuple[float, float]:
    tenth = max(len(losses) // 10, 1)
    return fmean(losses[:tenth]), fmean(losses[-tenth:])
