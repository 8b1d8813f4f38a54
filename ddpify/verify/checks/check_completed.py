"""Both jobs came to their end."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.verify.checks.base import numbered, result, user_frames
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.recording import Job, RunRecord
from ddpify.verify.verdict import Check

_TITLE = "both runs end"
_INNERMOST = 6  # frames shown of the stack of a rank that hangs
_TAIL = 6  # lines shown of a process that was gone before it could say why


def completed(c: Comparison) -> Check:
    reference, distributed = c.evidence.reference, c.evidence.distributed
    if not reference.finished:
        details = tuple(_ends(reference, "the original"))
        measured = "the original itself does not come to its end: nothing can be decided"
        return result("completed", _TITLE, True, measured, details)
    if not distributed.finished:
        details = tuple(_ends(distributed, "rank {rank}"))
        return result("completed", _TITLE, True, _summary(distributed), details)
    steps = numbered(len(c.one.steps), "optimizer step")
    ranks = f"{steps} in one process, {len(c.ranks[0].steps)} on {numbered(c.nproc, 'rank')}"
    details = tuple(
        f"rank {r.rank} left the process group open" for r in c.ranks if r.group_left_open
    )
    return result("completed", _TITLE, False, ranks, details)


def _summary(job: Job) -> str:
    if job.hung:
        taken = sorted({len(run.steps) for run in job.runs})
        return f"hangs after {' or '.join(map(str, taken))} optimizer steps"
    failed = [run for run in job.runs if run.crashed]
    if failed:
        return "; ".join(f"rank {run.rank}: {run.ending}" for run in failed[:2])
    return f"ended with exit code {job.returncode}"


def _ends(job: Job, who: str) -> Iterator[str]:
    """A crash is said first: the others are only waiting for that rank."""
    for run in sorted(job.runs, key=lambda run: (not run.crashed, run.rank)):
        name = who.format(rank=run.rank)
        if run.crashed:
            yield from _crash(run, job, name)
        elif job.hung:
            yield from _hang(run, job, name)
        elif run.status == "not started":
            yield f"{name} was not started"
            yield from _tail(run, job)


def _crash(run: RunRecord, job: Job, name: str) -> Iterator[str]:
    frames = user_frames(run.traceback, job.folder)
    where = f" at {frames[-1]}" if frames else ""
    yield f"{name} fails after {numbered(len(run.steps), 'step')}{where}: {run.ending}"
    if run.status == "exited":
        yield from _tail(run, job)
    else:
        yield from run.traceback.strip().splitlines()[-3:]


def _hang(run: RunRecord, job: Job, name: str) -> Iterator[str]:
    """The project's own frames; reports for reading at length have the whole stacks."""
    doing = "has ended" if run.over else f"waits in {run.waiting}" if run.waiting else "runs"
    yield f"{name} {doing} after {numbered(len(run.steps), 'step')}"
    frames = user_frames(run.stack, job.folder)[-_INNERMOST:]
    if frames:
        yield f"{name} stack: {' > '.join(frames)}"


def _tail(run: RunRecord, job: Job) -> Iterator[str]:
    yield from (run.stderr or job.launcher_output).strip().splitlines()[-_TAIL:]
