"""With batch norm each rank has running statistics of its own; evaluation must not show it.

In one process the number printed is that of the weights saved, and one decision follows from it.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpify.verify.recording import RunRecord
from tests.training import judges
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop, edit
from tests.training.runs import on_ranks, one_process

pytestmark = pytest.mark.training


@dataclass(frozen=True)
class Evaluation:
    """The project's names for what it evaluated, before the line that uses them first."""

    project: Project
    result: str
    before: str


@dataclass(frozen=True)
class Evaluated:
    tree: Path
    runs: tuple[RunRecord, ...]


IN_CLASSIFICATION = Evaluation(CLASSIFICATION, "val_loss, val_acc", "        scheduler.step()\n")
IN_DATAPARALLEL = Evaluation(DATAPARALLEL, "test_loss, acc", "    # Save checkpoint.\n")
Evaluate = Callable[[Evaluation], Evaluated]


@pytest.fixture(scope="module")
def evaluate(workshop: Workshop) -> Evaluate:
    """Two epochs on two ranks, each of which says what it goes by."""

    @functools.cache
    def run(place: Evaluation) -> Evaluated:
        project, line = place.project, place.before
        tree = workshop.migrated(project, "evaluated")
        indent = line[: len(line) - len(line.lstrip())]
        edit(tree / project.entry, (line, f"{indent}print('goes by', {place.result})\n{line}"))
        out = workshop.observed(project, "evaluated")
        job = on_ranks(tree, project.argv(epochs=2), 2, out)
        assert job.finished, "\n".join(run.stderr for run in job.runs)
        return Evaluated(tree, job.runs)

    return run


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(IN_CLASSIFICATION, id="classification", marks=pytest.mark.thorough),
        pytest.param(IN_DATAPARALLEL, id="dataparallel"),
    ],
)
def test_ranks_go_by_the_same_evaluation(place: Evaluation, evaluate: Evaluate) -> None:
    runs = evaluate(place).runs
    results = [re.findall("^goes by .*", run.stdout, re.MULTILINE) for run in runs]
    assert len(results[0]) == 2
    assert results[1] == results[0]
    judges.same_collectives(runs)
    judges.same_bits(*runs)


def test_what_is_printed_is_of_the_weights_saved(evaluate: Evaluate, workshop: Workshop) -> None:
    project, evaluated = CLASSIFICATION, evaluate(IN_CLASSIFICATION)
    alone = workshop.original(project, "evaluates")
    shutil.copytree(evaluated.tree / "out", alone / "out")
    argv = project.argv(*project.resume, "--eval-only")
    original = one_process(alone, argv, workshop.observed(project, "evaluates")).runs[0]
    printed = re.findall(r"val loss ([\d.]+) acc ([\d.]+)%", evaluated.runs[0].stdout)
    assert len(printed) == 2
    assert re.findall(r"val loss ([\d.]+) \| val acc ([\d.]+)%", original.stdout) == printed[-1:]
