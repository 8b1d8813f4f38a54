"""The JSON document holds what was found, in valid JSON, whatever the numbers are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpify.verify.recording import FileChange
from ddpify.verify.report import json as report
from ddpify.verify.verdict import Verification
from tests.verify import samples


def refuse(constant: str) -> None:
    pytest.fail(f"{constant} is no JSON")


def document(verification: Verification) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report.render(verification), parse_constant=refuse)
    return found


def test_options_checks_and_causes_are_there_as_they_are() -> None:
    found = document(samples.failing())
    assert found["schema"] == 1
    assert found["passed"] is False
    assert found["baseline"] == "the working tree"
    assert found["options"]["tolerance"] == 1e-9, "the one that was used, not the default 0"
    assert found["options"]["arguments"] == ["--epochs", "4", "--batch-size", "16"]
    assert found["distributed"]["command"].startswith("torchrun")
    assert [(one["name"], one["verdict"]) for one in found["checks"]] == [
        (one.name, one.verdict.value) for one in samples.FAILED
    ]
    assert found["causes"][0]["sites"] == list(samples.CAUSES[0].sites)
    assert document(samples.passing())["passed"] is True


def test_each_step_has_both_sides_numbers() -> None:
    verification = samples.failing(4, 24)
    steps = document(verification)["steps"]
    assert [row["step"] for row in steps] == list(range(24))
    reference, ranks = verification.reference.runs[0], verification.distributed.runs
    for number in (0, 7, 23):
        row = steps[number]
        losses = [run.steps[number].losses[0] for run in ranks]
        assert row["loss"]["reference"] == reference.steps[number].losses[0]
        assert row["loss"]["ranks"] == losses
        assert row["loss"]["mean"] == pytest.approx(np.mean(losses))
        assert row["learning_rates"] == {"reference": [0.25], "rank_0": [0.25]} or number > 19
    # the sum over four ranks of what one process averages
    norms = steps[0]["gradient_norm"]
    assert norms["ranks"] == pytest.approx([4 * norms["reference"]] * 4)
    assert steps[0]["largest_difference"]["value"] > 0.1
    assert steps[0]["largest_difference"]["parameter"] in samples.NAMES


def test_each_rank_is_counted() -> None:
    one, *ranks = document(samples.failing(2, 24))["ranks"]
    assert (one["rank"], one["steps"], one["stdout_lines"]) == (None, 24, 2)
    assert one["samples"] == {"training": 384, "training_distinct": 192, "evaluation": 128}
    for number, rank in enumerate(ranks):
        assert rank["rank"] == number
        assert rank["samples"] == {"training": 192, "training_distinct": 96, "evaluation": 64}
        assert rank["collectives"] == {"broadcast": 24, "all_reduce": 2}
        assert rank["peak_memory"] > 180_000_000


def test_files_name_their_writers() -> None:
    right = {row["path"]: row["ranks"] for row in document(samples.passing(2, 24))["files"]}
    wrong = {row["path"]: row["ranks"] for row in document(samples.failing(2, 24))["files"]}
    assert right == {"log.csv": [0], "out/last.pt": [0]}
    assert wrong == {"log.csv": [0, 1], "out/last.pt": [0, 1]}


def test_collectives_are_counted_for_each_optimizer_step() -> None:
    rows = {row["name"]: row for row in document(samples.passing(2, 24))["collectives"]}
    assert rows["broadcast"]["counts"] == [24, 24]
    assert rows["broadcast"]["per_step"] == [1.0, 1.0]
    assert rows["all_reduce"]["site"] == "train.py:67"
    assert all(row["equal"] for row in rows.values())


def test_what_is_not_finite_is_a_string_and_what_is_missing_is_null() -> None:
    verification = samples.passing(2, 12)
    broken = replace(
        verification,
        distributed=samples.job(2, 12, samples.Spoiled(nan_from=5)),
        reference=samples.changed_job(
            verification.reference, lambda step: replace(step, losses=()) if step.number else step
        ),
    )
    steps = document(broken)["steps"]
    assert steps[5]["loss"] == {"reference": None, "ranks": ["NaN", "NaN"], "mean": "NaN"}
    infinite = samples.changed_job(
        verification.distributed, lambda step: replace(step, losses=(float("-inf"),))
    )
    assert document(replace(verification, distributed=infinite))["steps"][0]["loss"]["mean"] == (
        "-Infinity"
    )


def test_a_file_name_that_is_no_text_can_be_written() -> None:
    odd = FileChange(0, 0.1, "open", "weights-\udcff.pt", existed=False)
    verification = samples.changed(
        lambda run: replace(run, events=(*run.events, odd)), samples.passing(2, 2)
    )
    rendered = report.render(verification)
    rendered.encode("utf-8")
    assert "weights-\udcff.pt" in {row["path"] for row in json.loads(rendered)["files"]}


def test_runs_that_never_started_have_a_document_too() -> None:
    found = document(replace(samples.passing(), reference=samples.job(1, 0)))
    assert found["steps"][0]["loss"]["reference"] is None
    nothing = replace(samples.passing(), distributed=samples.job(2, 0), reference=samples.job(1, 0))
    assert document(nothing)["steps"] == []
