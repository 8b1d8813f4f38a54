"""The verification as JSON, for programs: everything that was found, without tensors and events.

``schema`` grows when a key changes its meaning or goes; new keys do not change it. JSON has no
number that is not finite: those are the strings "NaN", "Infinity" and "-Infinity". ``null``
stands for what there is not, such as the loss of a step without a ``backward()``. Times are in
seconds, memory and sizes in bytes; ``step`` numbers count all optimizers together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ddpify.report.hunks import file_diffs
from ddpify.verify.recording import Job, RunRecord
from ddpify.verify.report import series, tables, words
from ddpify.verify.verdict import Verification


def render(verification: Verification) -> str:
    """The whole document."""
    document = {
        "schema": 1,
        "passed": verification.passed,
        "verdict": words.verdict(verification),
        "options": _options(verification),
        "baseline": verification.baseline,
        "setup": list(verification.setup),
        "kept": verification.kept,
        "occasion": asdict(verification.occasion),
        "stopped": [asdict(one) for one in verification.stopped],
        "undecided_by": list(verification.undecided_by),
        "logged": [asdict(one) for one in verification.logged],
        "reference": _job(verification.reference),
        "distributed": _job(verification.distributed),
        "checks": [{**asdict(one), "verdict": one.verdict.value} for one in verification.checks],
        "causes": [asdict(one) for one in verification.causes],
        "steps": _steps(verification),
        "ranks": [_rank(row) for row in tables.rank_rows(verification)],
        "files": [_file(row) for row in tables.file_rows(verification)],
        "collectives": [
            _collective(row) for row in tables.collective_rows(verification.distributed)
        ],
        "migration": _migration(verification),
    }
    text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    # file names may hold bytes that are no text; half of a pair is an escape that JSON knows
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


def _options(verification: Verification) -> dict[str, Any]:
    options = verification.options
    return {
        **asdict(options),
        "script": str(options.script),
        "neutralise": sorted(options.neutralise),
        "tolerance": options.allowed,
    }


def _job(job: Job) -> dict[str, Any]:
    speed = tables.speed(job)
    return {
        "command": job.command,
        "folder": job.folder,
        "returncode": job.returncode,
        "seconds": job.seconds,
        "hung": job.hung,
        "finished": job.finished,
        "launcher_output": job.launcher_output,
        "step_seconds": speed.step,
        "samples_per_second": speed.rate,
        "peak_memory": speed.memory,
    }


def _steps(verification: Verification) -> list[dict[str, Any]]:
    """A row for each step that any process took."""
    one = verification.reference.runs[0] if verification.reference.runs else RunRecord()
    many = verification.distributed.runs
    taken = {step.number: step.optimizer for run in (*many, one) for step in run.steps}
    numbers = sorted(taken)
    mean = series.mean(tuple(map(series.losses, many))).at(numbers)
    losses = [
        {**both, "mean": value}
        for both, value in zip(_both(series.losses, one, many, numbers), mean, strict=True)
    ]
    columns: dict[str, list[dict[str, Any]] | list[dict[str, Any] | None]] = {
        "loss": losses,
        "gradient_norm": _both(series.gradient_norms, one, many, numbers),
        "seconds": _both(series.seconds, one, many, numbers),
        "learning_rates": _rates(one, many, numbers),
        "largest_difference": _largest(one, many, numbers),
    }
    return [
        {"step": number, "optimizer": taken[number]}
        | {name: column[place] for name, column in columns.items()}
        for place, number in enumerate(numbers)
    ]


def _both(
    measure: Callable[[RunRecord], series.Series],
    one: RunRecord,
    many: tuple[RunRecord, ...],
    numbers: list[int],
) -> list[dict[str, Any]]:
    """At each step the reference's number and that of every rank."""
    ours, theirs = measure(one).at(numbers), [measure(run).at(numbers) for run in many]
    return [
        {"reference": number, "ranks": [rank[place] for rank in theirs]}
        for place, number in enumerate(ours)
    ]


def _rates(one: RunRecord, many: tuple[RunRecord, ...], numbers: list[int]) -> list[dict[str, Any]]:
    """Of each parameter group, the reference's and rank 0's."""
    ours = {step.number: step.learning_rates for step in one.steps}
    theirs = {step.number: step.learning_rates for run in many[:1] for step in run.steps}
    return [{"reference": ours.get(n), "rank_0": theirs.get(n)} for n in numbers]


def _largest(
    one: RunRecord, many: tuple[RunRecord, ...], numbers: list[int]
) -> list[dict[str, Any] | None]:
    """Of the parameters after each step, over all ranks."""
    known = {found.step: found for found in series.differences(one, many)}
    return [
        (
            {"value": known[n].difference, "parameter": known[n].name, "rank": known[n].rank}
            if n in known
            else None
        )
        for n in numbers
    ]


def _rank(row: tables.RankRow) -> dict[str, Any]:
    run = row.run
    return {
        "name": row.name,
        "rank": row.rank,
        "status": run.status,
        "exit_code": run.exit_code,
        "traceback": run.traceback,
        "waiting": run.waiting,
        "stack": run.stack,
        "backend": run.backend,
        "device": run.device,
        "steps": row.steps,
        "samples": {
            "training": row.training,
            "training_distinct": row.distinct,
            "evaluation": row.evaluation,
        },
        "files": row.files,
        "collectives": row.collectives,
        "stdout_lines": row.lines,
        "peak_memory": row.memory,
        "held": asdict(run.held) if run.held else None,
        "noise": asdict(run.noise),
        "loaders": [asdict(loader) for loader in run.loaders],
        "optimizers": [{"number": one.number, "kind": one.kind} for one in run.optimizers],
    }


def _file(row: tables.FileRow) -> dict[str, Any]:
    return {
        "path": row.path,
        "operations": list(row.operations),
        "reference": bool(row.writes[:1] and row.writes[0]),
        "ranks": list(row.ranks),
    }


def _collective(row: tables.CollectiveRow) -> dict[str, Any]:
    return {**asdict(row), "per_step": list(row.per_step), "equal": row.equal}


def _migration(verification: Verification) -> list[dict[str, Any]] | None:
    """The files ddpify changed, with the rules that asked for it; null if it changed none."""
    if verification.migration is None:
        return None
    return [
        {
            "path": diff.path,
            "new": diff.is_new,
            "rules": sorted({rule for hunk in diff.hunks for rule, _ in hunk.reasons}),
        }
        for diff in file_diffs(verification.migration)
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value
