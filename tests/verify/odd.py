"""Verifications at the edge: hostile text, numbers that are none, runs that never began."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ddpify.verify.recording import FileChange
from ddpify.verify.verdict import Cause, Check, Verdict, Verification
from tests.verify import samples

SCRIPT = "</pre><script>document.title='taken'</script><img src=x onerror=alert(1)>"


def markup() -> Verification:
    """Everything a user's program can put into the page is markup."""
    changes = (FileChange(0, 0.1, f"{SCRIPT}", f"out/{SCRIPT}", existed=False),)
    check = Check("console", SCRIPT, Verdict.FAIL, SCRIPT, (SCRIPT,))
    verification = samples.changed(
        lambda run: replace(
            run,
            stdout=SCRIPT,
            traceback=SCRIPT,
            waiting=SCRIPT,
            events=(*run.events, *changes),
            optimizers=tuple(replace(one, kind=SCRIPT) for one in run.optimizers),
        ),
        samples.passing(2, 6),
    )
    return replace(
        verification,
        baseline=SCRIPT,
        setup=(SCRIPT,),
        checks=(check,),
        causes=(Cause("DDP401", SCRIPT, SCRIPT, SCRIPT, (SCRIPT,)),),
        reference=replace(verification.reference, command=SCRIPT),
    )


def one_step_in_nan() -> Verification:
    return replace(
        samples.passing(2, 1), distributed=samples.job(2, 1, samples.Spoiled(nan_from=0))
    )


def exploded() -> Verification:
    grown = samples.changed_job(
        samples.passing(2, 40).distributed,
        lambda step: replace(
            step,
            losses=(10.0 ** min(8 * step.number, 308),),
            gradients=tuple(np.full(3, 1e300) for _ in step.gradients),
            parameters=tuple(part * math.inf for part in step.parameters),
        ),
    )
    return replace(samples.passing(2, 40), distributed=grown)


def identical() -> Verification:
    return replace(samples.passing(2, 5), distributed=samples.job(1, 5))


def three_optimizers() -> Verification:
    return replace(
        samples.passing(2, 12),
        reference=samples.job(1, 12, None, 3),
        distributed=samples.job(2, 12, None, 3),
    )


def never_started() -> Verification:
    return replace(samples.passing(), reference=samples.job(1, 0), distributed=samples.job(2, 0))


def crashed() -> Verification:
    error = "RuntimeError: shapes differ"
    return samples.changed(
        lambda run: replace(run, status=error, exit_code=1, traceback=f"Traceback\n{error}"),
        samples.passing(2, 3),
    )
