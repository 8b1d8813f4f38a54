"""Verifications as ``ddpify verify`` would come to them, of what a small network did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ddpify.verify.checks.endings import endings
from ddpify.verify.options import Options
from ddpify.verify.recording import Job, RunRecord, StepRecord, WaitRecord
from ddpify.verify.verdict import Cause, Check, Logged, Occasion, Verdict, Verification
from tests.verify.trainer import NAMES, Spoiled, job

__all__ = ["NAMES", "Spoiled", "job"]

CHECKS = (
    Check("finished", "Both runs came to their end", Verdict.PASS, "exit code 0 on every rank"),
    Check("steps", "Same number of optimizer steps", Verdict.PASS, "48 and 48"),
    Check(
        "trajectory",
        "Same trajectory",
        Verdict.PASS,
        "largest relative difference 3.2e-15, tolerance 1e-09",
    ),
    Check("ranks-identical", "Ranks identical after every step", Verdict.PASS, "48 of 48 steps"),
    Check("samples", "Samples disjoint, covering, same batches", Verdict.PASS, "192 in 4 epochs"),
    Check("metrics", "Printed and logged values equal", Verdict.PASS, "12 values"),
    Check("files", "Each file written by one rank", Verdict.PASS, "2 files"),
    Check("console", "Console lines appear once", Verdict.PASS, "4 lines"),
    Check("checkpoints", "Checkpoints load in the other program", Verdict.PASS, "out/last.pt"),
    Check("accumulation", "Accumulation skips all-reduce", Verdict.SKIPPED, "no accumulation"),
    Check(
        "speed",
        "Speed-up",
        Verdict.INFO,
        "1.71x on 2 ranks, efficiency 0.86",
        ("median step 24.0 ms in one process, 14.0 ms on the slowest rank",),
    ),
)
SETUP = (
    "torch 2.13.0, CPU, float64",
    "one process takes the samples in the order the ranks take them together",
)


ACCURACY = tuple((float(epoch), 0.5 + 0.1 * epoch) for epoch in range(4))
LOGGED = (Logged("accuracy", "log.csv", ACCURACY, ACCURACY),)


def options(world: int = 2) -> Options:
    return Options(Path("train.py"), ("--epochs", "4", "--batch-size", "16"), nproc=world)


def passing(world: int = 2, steps: int = 48) -> Verification:
    """Rightly migrated."""
    return Verification(
        options(world),
        "the working tree",
        job(1, steps),
        job(world, steps),
        SETUP,
        CHECKS,
        logged=LOGGED,
        occasion=Occasion("2026-01-02 03:04 +0000", "box", "Linux x86_64", "abc1234"),
    )


def judged(
    checks: tuple[Check, ...], **others: tuple[Verdict, str, tuple[str, ...]]
) -> tuple[Check, ...]:
    """Checks, some of which came out differently; ``_`` in a name stands for ``-``."""
    names = {name.replace("_", "-"): other for name, other in others.items()}
    return tuple(
        (
            replace(
                one,
                verdict=names[one.name][0],
                measured=names[one.name][1],
                details=names[one.name][2],
            )
            if one.name in names
            else one
        )
        for one in checks
    )


FAILED = judged(
    CHECKS,
    trajectory=(
        Verdict.FAIL,
        "largest relative difference 0.41, tolerance 1e-09",
        (
            "first differs at step 0, in the gradient of encoder.weight, by a factor of 2.000000",
            "after step 0: encoder.weight off by 0.13 (relative L2), head.bias by 0.09",
            "the loss of step 1 is the first that differs: 0.5123 and 0.6217",
            *(f"after step {number}: encoder.weight off by 0.{20 + number}" for number in range(9)),
        ),
    ),
    files=(Verdict.FAIL, "log.csv by 2 ranks", ("log.csv: opened by ranks 0, 1",)),
    console=(Verdict.FAIL, "4 lines printed 2 times", ("'epoch 0: loss 0.4021': ranks 0, 1",)),
    metrics=(Verdict.UNDECIDED, "follows from the trajectory", ("log.csv:2 differs",)),
)
CAUSES = (
    Cause(
        "DDP401",
        "The loss is a sum over the batch",
        "DistributedDataParallel averages gradients over ranks; of a loss that is a sum over the "
        "batch, the average is N times too small, and averaged twice N times too large.",
        "gradients at step 0 are exactly 2.000000 times those of one process",
        ("train.py:38: the loss is reduced with 'sum' | see `reduction`",),
    ),
    Cause(
        "DDP502",
        "Every rank writes the same file",
        "Ranks that write one file overwrite each other.",
        "log.csv was opened by ranks 0 and 1",
    ),
)


def failing(world: int = 2, steps: int = 48) -> Verification:
    """Gradients are summed, and every rank prints and writes."""
    spoiled = job(world, steps, Spoiled(summed=True, everywhere=True))
    right = passing(world, steps)
    return replace(right, distributed=spoiled, checks=FAILED, causes=CAUSES)


def hung(world: int = 2) -> Verification:
    """Rank 0 waits for the others, who are gone from the loop."""
    many = job(world, 7)
    stack = 'Thread 0x7f (MainThread)\n  File "train.py", line 67, in evaluate\n    all_reduce(x)'
    runs = tuple(
        replace(
            run,
            status="running",
            exit_code=None,
            stack=stack,
            waiting="all_reduce at train.py:67" if run.rank == 0 else "",
            waits=(*run.waits, WaitRecord("all_reduce", "train.py:67", 0.6, None))[run.rank :],
        )
        for run in many.runs
    )
    checks = judged(
        CHECKS,
        finished=(Verdict.FAIL, "no progress for 300 s", ("rank 0 waits in all_reduce",)),
    )
    stopped = replace(many, runs=runs, hung=True, returncode=1)
    return replace(passing(world), distributed=stopped, checks=checks, stopped=endings(stopped))


def changed_job(one: Job, step: Callable[[StepRecord], StepRecord]) -> Job:
    """With every step of every rank changed."""
    runs = tuple(replace(run, steps=tuple(map(step, run.steps))) for run in one.runs)
    return replace(one, runs=runs)


def changed(run: Callable[[RunRecord], RunRecord], verification: Verification) -> Verification:
    """With every rank's run changed."""
    runs = tuple(map(run, verification.distributed.runs))
    return replace(verification, distributed=replace(verification.distributed, runs=runs))
