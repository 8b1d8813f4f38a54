"""Checkpoints go both ways between original and migrated project, and resuming goes on.

The rest of a resumed run is compared with the rest of a run in one go: three epochs, broken off
after the first, with the learning rate to change after the second.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from ddpify.verify.recording import Fetch, Job, RunRecord, ShuffleRecord
from tests.training import judges
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop
from tests.training.runs import Train, Trained, on_ranks, one_process, side_by_side, train_both

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("training-ranks")]


@dataclass(frozen=True)
class Resumed:
    """Trees after the first epoch, and the run of all three in one go."""

    project: Project
    original: Path
    migrated: Path
    in_one_go: Trained
    workshop: Workshop

    def rest(self, job: Job) -> Job:
        return replace(job, runs=tuple(self._rest(run) for run in job.runs))

    def _rest(self, run: RunRecord) -> RunRecord:
        """From the second epoch on, as if the run began there."""
        done = self.project.steps_per_epoch
        last, optimizer = run.steps[done - 1], run.optimizers[0]
        begun = replace(optimizer, initial=last.parameters, initial_digests=last.digests)
        places = enumerate(run.events)
        start = next(n for n, event in places if isinstance(event, Fetch) and event.passed == 1)
        return replace(run, optimizers=(begun,), steps=run.steps[done:], events=run.events[start:])

    def go_on(self, name: str, source: Path, into: Path, ranks: int) -> Job:
        """Train ``into`` from the files of ``source``; 0 ranks is plain python."""
        shutil.copytree(source / "out", into / "out")
        argv = self.project.resuming(*self.project.plain, done=1)
        out = self.workshop.observed(self.project, name)
        if ranks:
            job = on_ranks(into, argv, ranks, out)
        else:
            job = one_process(into, argv, out, "--global-order=2", f"--order={self._order(name)}")
        assert job.finished, job.runs[0].stderr
        return job

    def _order(self, name: str) -> Path:
        """How the ranks shuffled after the first epoch."""
        run = self.in_one_go.ranks.runs[0]
        _, *later = (event for event in run.events if isinstance(event, ShuffleRecord))
        loader = run.loaders[later[0].loader]
        file = self.workshop.folder / f"{self.project.folder}-{name}.json"
        told = [loader.samples, later[0].seed, [e.epoch for e in later]]
        file.write_text(json.dumps([[*told, loader.sampler != "_Dealt"]]))
        return file


@pytest.fixture(
    params=[
        pytest.param(CLASSIFICATION, id="classification", marks=pytest.mark.thorough),
        pytest.param(DATAPARALLEL, id="dataparallel"),
    ],
    scope="module",
)
def resumed(request: pytest.FixtureRequest, train: Train, workshop: Workshop) -> Resumed:
    project: Project = request.param
    argv = project.argv(*project.plain, epochs=1)
    original = workshop.original(project, "first-epoch")
    migrated = workshop.migrated(project, "first-epoch-ranks")
    train_both((original, migrated), argv, workshop.observed(project, "first-epoch"))
    return Resumed(project, original, migrated, train(project), workshop)


def test_resuming_on_two_ranks_continues_the_trajectory(resumed: Resumed) -> None:
    into = resumed.workshop.migrated(resumed.project, "resumed")
    runs = resumed.go_on("resumed", resumed.migrated, into, ranks=2).runs
    for whole, run in zip(resumed.rest(resumed.in_one_go.ranks).runs, runs, strict=True):
        judges.same_bits(whole, run)
    trees = (into, resumed.in_one_go.tree)
    assert resumed.project.accuracies(trees[0]) == resumed.project.accuracies(trees[1])
    assert {run.rank for run in runs if run.files} == {0}
    assert "Resum" in runs[0].stdout
    assert runs[1].stdout == ""


@pytest.fixture(scope="module")
def alone(resumed: Resumed) -> tuple[Job, Job]:
    """The original from what two ranks wrote, the migrated project from what the original did."""
    shop, project = resumed.workshop, resumed.project
    original, migrated = (shop.original(project, "alone-1"), shop.migrated(project, "alone-2"))
    return side_by_side(
        lambda: resumed.go_on("alone-1", resumed.migrated, original, ranks=0),
        lambda: resumed.go_on("alone-2", written_by_original(resumed), migrated, ranks=0),
    )


def test_the_original_goes_on_from_what_two_ranks_wrote(
    resumed: Resumed, alone: tuple[Job, Job]
) -> None:
    judges.same_training(resumed.rest(resumed.in_one_go.reference), alone[0])


@pytest.mark.thorough
def test_one_process_of_the_migrated_project_goes_on_from_what_the_original_wrote(
    resumed: Resumed, alone: tuple[Job, Job]
) -> None:
    whole = resumed.rest(resumed.in_one_go.reference)
    judges.same_bits(whole.runs[0], alone[1].runs[0])


@pytest.mark.thorough
def test_two_ranks_go_on_from_what_the_original_wrote(resumed: Resumed) -> None:
    into = resumed.workshop.migrated(resumed.project, "after-original")
    job = resumed.go_on("after-original", written_by_original(resumed), into, ranks=2)
    judges.same_training(resumed.rest(resumed.in_one_go.reference), job)


def written_by_original(resumed: Resumed) -> Path:
    """Its tree; of nn.DataParallel with the keys that a checkpoint has from it on a GPU."""
    if resumed.project is not DATAPARALLEL:
        return resumed.original
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
