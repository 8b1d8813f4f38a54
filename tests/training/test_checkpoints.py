"""Checkpoints go both ways between original and migrated project, and resuming goes on.

The rest of a resumed run is compared with the rest of a run in one go: three epochs, broken off
after the first, with the learning rate to change after the second.
"""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.support import compare
from tests.support.recording import Run
from tests.support.run import run_distributed, run_single
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop
from tests.training.runs import Train, Trained, train_both

pytestmark = pytest.mark.training


@dataclass(frozen=True)
class Resumed:
    """Trees after the first epoch, and the run of all three in one go."""

    project: Project
    original: Path
    migrated: Path
    in_one_go: Trained
    workshop: Workshop

    def rest(self, run: Run) -> Run:
        return dataclasses.replace(run, steps=run.steps[self.project.steps_per_epoch :])

    def go_on(self, name: str, source: Path, into: Path, ranks: int) -> list[Run]:
        """Train ``into`` from the files of ``source``; 0 ranks is plain python."""
        shutil.copytree(source / "out", into / "out")
        argv = self.project.resuming(*self.project.plain, done=1)
        out = self.workshop.observed(self.project, name)
        if ranks:
            runs = run_distributed(into, argv, ranks, out)
        else:
            runs = [run_single(into, argv, out, global_order=2, first_epoch=1)]
        assert {run.status for run in runs} == {"finished"}, runs[0].stderr
        return runs


@pytest.fixture(
    params=[
        pytest.param(CLASSIFICATION, id="classification"),
        pytest.param(DATAPARALLEL, id="dataparallel"),
    ],
    scope="module",
)
def resumed(request: pytest.FixtureRequest, train: Train, workshop: Workshop) -> Resumed:
    project: Project = request.param
    argv = project.argv(*project.plain, epochs=1)
    original = workshop.original(project, "first-epoch")
    migrated = workshop.migrated(project, "first-epoch-ranks")
    train_both((original, migrated), argv, 2, workshop.observed(project, "first-epoch"))
    return Resumed(project, original, migrated, train(project, 2, False), workshop)


def test_resuming_on_two_ranks_continues_the_trajectory(resumed: Resumed) -> None:
    into = resumed.workshop.migrated(resumed.project, "resumed")
    runs = resumed.go_on("resumed", resumed.migrated, into, ranks=2)
    for run, whole in zip(runs, resumed.in_one_go.runs, strict=True):
        assert compare.first_divergence(resumed.rest(whole), run) is None
    trees = (into, resumed.in_one_go.tree)
    assert resumed.project.accuracies(trees[0]) == resumed.project.accuracies(trees[1])
    assert set(compare.files_once(runs).values()) == {0}
    assert "Resum" in compare.stdout_once(runs)


def test_the_original_goes_on_from_what_two_ranks_wrote(resumed: Resumed) -> None:
    into = resumed.workshop.original(resumed.project, "after-migrated")
    runs = resumed.go_on("after-migrated", resumed.migrated, into, ranks=0)
    compare.same_training(resumed.rest(resumed.in_one_go.reference), runs, 1e-5)


@pytest.mark.parametrize("ranks", [pytest.param(0, id="python"), pytest.param(2, id="ranks")])
def test_the_migrated_project_goes_on_from_what_the_original_wrote(
    resumed: Resumed, ranks: int
) -> None:
    source, prefix = resumed.original, "after-original"
    if resumed.project is DATAPARALLEL:
        source, prefix = written_by_data_parallel(resumed), "after-data-parallel"
    into = resumed.workshop.migrated(resumed.project, f"{prefix}-{ranks}")
    runs = resumed.go_on(f"{prefix}-{ranks}", source, into, ranks)
    tolerance = 1e-5 if ranks else 0.0  # in one process there is no other order of summation
    compare.same_training(resumed.rest(resumed.in_one_go.reference), runs, tolerance)


def written_by_data_parallel(resumed: Resumed) -> Path:
    """A tree whose checkpoint has the keys it would have from nn.DataParallel on a GPU."""
    tree = resumed.workshop.folder / "written-by-data-parallel"
    if not tree.exists():
        shutil.copytree(resumed.original, tree)
        state = resumed.project.load(tree)
        weights = state[resumed.project.weights]
        state[resumed.project.weights] = {f"module.{key}": weights[key] for key in weights}
        torch.save(state, tree / "out" / resumed.project.checkpoint)
    return tree


def test_checkpoints_of_two_ranks_have_the_original_keys(resumed: Resumed) -> None:
    states = [resumed.project.load(tree) for tree in (resumed.original, resumed.migrated)]
    keys = [list(state[resumed.project.weights]) for state in states]
    assert keys[0] == keys[1]
    assert list(states[0]) == list(states[1])
