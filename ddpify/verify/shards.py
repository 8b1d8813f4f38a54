"""Checkpoints to which each rank wrote its shards are compared as the files that they stand for."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ddpify.names import INSTALLED
from ddpify.verify.interpreter import Interpreter, InterpreterError
from ddpify.verify.recording import EventRecord, FileChange, Job, RunRecord

_SCRIPT = Path(__file__).parent / "observer" / "join_shards.py"


def joined(interpreter: Interpreter, folder: Path, job: Job) -> Job:
    """Make each of them a file, as if rank 0 had saved it; what cannot be read stays as it is."""
    if not any(change.path.endswith("/checkpoint") for change in job.runs[0].files):
        return job
    spec = importlib.util.find_spec(INSTALLED)
    assert spec is not None
    assert spec.submodule_search_locations
    helpers = next(iter(spec.submodule_search_locations))
    try:
        paths = interpreter.ask(_SCRIPT, str(folder), helpers)
    except InterpreterError:
        return job
    runs = (replace(run, events=tuple(_events(run, paths))) for run in job.runs)
    return replace(job, runs=tuple(runs))


def _events(run: RunRecord, paths: Sequence[str]) -> Iterator[EventRecord]:
    for event in run.events:
        inside = f"{event.path}/" if isinstance(event, FileChange) else ""
        whole = next((path for path in paths if inside.startswith(f"{path}/")), None)
        if whole is None or not isinstance(event, FileChange):
            yield event
        elif not run.rank:
            yield replace(event, path=whole, operation="torch.save")
