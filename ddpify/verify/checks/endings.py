"""Why ranks did not come to their end, in their own words: what a reader wants to know first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from ddpify.names import CORE
from ddpify.verify.checks.base import user_frames
from ddpify.verify.recording import Job, RunRecord
from ddpify.verify.verdict import Ending

# What a rank says when another one is gone, or does something else: not the cause.
_FROM_OTHERS: Final = re.compile(
    r"gloo|nccl|connection (?:was )?(?:closed|reset|refused)|by peer|broken pipe|ProcessGroup"
    r"|Dist(?:Backend|Store|Network)Error|timed out|timeout|op\.preamble",
    re.IGNORECASE,
)
# The last frame of a traceback, with its line.
_LAST: Final = re.compile(
    r'.*^ +File "(?P<file>[^"]+)", line [^\n]*\n +(?P<line>[^\n]*)', re.MULTILINE | re.DOTALL
)
_CHAINED: Final = re.compile(r"^(?:The above exception was|During handling of the)", re.MULTILINE)


def only_others_failed(run: RunRecord) -> bool:
    """It failed because of what another rank did."""
    return run.crashed and bool(_FROM_OTHERS.search(run.status)) and not _raised_itself(run)


def _raised_itself(run: RunRecord) -> bool:
    """By a statement of the program, in whatever words, and not because of another exception."""
    last = _LAST.match(run.traceback)
    if last is None or "/torch/" in last["file"] or _CHAINED.search(run.traceback):
        return False
    return last["line"].startswith(("raise ", "assert "))


def endings(job: Job) -> tuple[Ending, ...]:
    """Nothing where all ranks end well; else those that say why, each reason once."""
    if job.finished:
        return ()
    crashed = [run for run in job.runs if run.crashed]
    own = [run for run in crashed if not only_others_failed(run)]
    speaking = [run for run in own if run.status != "exited"]
    if found := speaking or own:
        return _once(Ending(run.rank, _reason(run), _place(run, job)) for run in found)
    if job.hung:
        return tuple(Ending(run.rank, doing(run), _stands(run, job)) for run in job.runs)
    if crashed:
        return _once(Ending(run.rank, _reason(run), _place(run, job)) for run in crashed)
    return (Ending(0, f"ended with exit code {job.returncode}"),)


def doing(run: RunRecord) -> str:
    """What a rank does in a job that makes no progress."""
    return "has ended" if run.over else f"waits in {run.waiting}" if run.waiting else "runs"


def _once(found: Iterator[Ending]) -> tuple[Ending, ...]:
    known: dict[str, Ending] = {}
    for ending in found:
        known.setdefault(ending.reason, ending)
    return tuple(known.values())


def _reason(run: RunRecord) -> str:
    """The sentence with which it exits is not an exception to a reader."""
    return run.ending.removeprefix("SystemExit: ").strip().split("\n")[0]


def _place(run: RunRecord, job: Job) -> str:
    """In the project's own code; not in the helper that refuses what it was handed."""
    frames = user_frames(run.traceback, job.folder)
    return next((frame for frame in reversed(frames) if not _of_helper(frame)), "")


def _stands(run: RunRecord, job: Job) -> str:
    """Where a rank is that waits for nothing: a collective names its own place."""
    frames = () if run.waiting or run.over else user_frames(run.stack, job.folder)
    return frames[-1] if frames else ""


def _of_helper(frame: str) -> bool:
    return PurePosixPath(frame.partition(":")[0]).name.startswith(CORE)
