"""With batch norm each rank has running statistics of its own; evaluation must not show it.

In one process the number printed is that of the weights saved, and one decision follows from it.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import compare
from tests.support.recording import Run
from tests.support.run import run_distributed, run_single
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop, edit

pytestmark = pytest.mark.training


@dataclass(frozen=True)
class Place:
    """Where the project has evaluated and not yet decided, and its names for the result."""

    project: Project
    above: str
    result: str


CASES = [
    pytest.param(
        Place(CLASSIFICATION, "        scheduler.step()\n", "val_loss, val_acc"),
        id="classification",
    ),
    pytest.param(
        Place(DATAPARALLEL, "    # Save checkpoint.\n", "test_loss, acc"), id="dataparallel"
    ),
]


@pytest.mark.parametrize("place", CASES)
def test_ranks_decide_on_the_same_evaluation(place: Place, workshop: Workshop) -> None:
    project, above = place.project, place.above
    tree = workshop.migrated(project, "decisions")
    indent = above[: len(above) - len(above.lstrip())]
    edit(tree / project.entry, (above, f"{indent}print('decides on', {place.result})\n{above}"))
    runs = train(project, tree, workshop.observed(project, "decisions"))
    decisions = [re.findall(r"^decides on .*", run.stdout, re.MULTILINE) for run in runs]
    assert len(decisions[0]) == 2
    assert decisions[1] == decisions[0]
    compare.same_collectives(runs)
    compare.ranks_identical(runs)


def test_the_evaluation_printed_is_that_of_the_weights_saved(workshop: Workshop) -> None:
    project = CLASSIFICATION
    tree = workshop.migrated(project, "evaluated")
    runs = train(project, tree, workshop.observed(project, "evaluated"))
    alone = workshop.original(project, "evaluates")
    shutil.copytree(tree / "out", alone / "out")
    argv = project.argv(*project.resume, "--eval-only")
    original = run_single(alone, argv, workshop.observed(project, "evaluates"))
    printed = re.findall(r"val loss ([\d.]+) acc ([\d.]+)%", runs[0].stdout)
    assert re.findall(r"val loss ([\d.]+) \| val acc ([\d.]+)%", original.stdout) == printed[-1:]


def train(project: Project, tree: Path, out: Path) -> list[Run]:
    runs = run_distributed(tree, project.argv(epochs=2), 2, out)
    assert {run.status for run in runs} == {"finished"}, runs[0].stderr + runs[1].stderr
    return runs
