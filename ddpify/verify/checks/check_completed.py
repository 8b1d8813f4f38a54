"""Both jobs came to their end."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.verify.checks.base import numbered, result, user_frames
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.endings import doing, endings
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
    return "; ".join(f"rank {one.rank}: {one.reason}" for one in endings(job)[:2])


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
    said = run.ending.removeprefix("SystemExit: ")
    yield f"{name} fails after {numbered(len(run.steps), 'step')}{where}: {said}"
    if run.status == "exited":
        another = any(one.crashed and one.status != "exited" for one in job.runs)
        yield from () if another else _tail(run, job)
    elif not run.over:
        yield from (line for line in run.traceback.strip().splitlines()[-3:] if line.strip(" ^~"))


def _hang(run: RunRecord, job: Job, name: str) -> Iterator[str]:
    """The project's own frames; reports for reading at length have the whole stacks."""
    yield f"{name} {doing(run)} after {numbered(len(run.steps), 'step')}"
    frames = user_frames(run.stack, job.folder)[-_INNERMOST:]
    if frames:
        yield f"{name} stack: {' > '.join(frames)}"


def _tail(run: RunRecord, job: Job) -> Iterator[str]:
    yield from (run.stderr or job.launcher_output).strip().splitlines()[-_TAIL:]
