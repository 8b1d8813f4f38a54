"""On two ranks, and on one, a migrated project trains, prints and writes as one process did.

tests/verify/test_fixtures.py proves it by `ddpify verify`, in float64 and on more ranks; here it
is in float32, and with what a fixture is known to print, write and evaluate.
"""

from __future__ import annotations

import pytest

from ddpify.verify.checks.passes import training_windows
from tests.training import judges
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop
from tests.training.runs import Train, Trained, on_ranks

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("training-ranks")]


@pytest.fixture(
    params=[
        pytest.param(CLASSIFICATION, id="classification"),
        pytest.param(DATAPARALLEL, id="dataparallel"),
    ],
    scope="module",
)
def project(request: pytest.FixtureRequest) -> Project:
    chosen: Project = request.param
    return chosen


@pytest.fixture(scope="module")
def trained(project: Project, train: Train) -> Trained:
    return train(project)


def test_both_train_alike(project: Project, trained: Trained) -> None:
    assert len(trained.reference.runs[0].steps) == 3 * project.steps_per_epoch
    judges.same_training(trained.reference, trained.ranks)


def test_ranks_take_equal_shares(trained: Trained) -> None:
    """Of a short last batch that they do not divide, rank 0 takes one more."""
    shares = [[step.total() for step in training_windows(run)] for run in trained.ranks.runs]
    assert all(0 <= one - other <= 1 for one, other in zip(*shares, strict=True))


def test_evaluation_has_the_same_accuracy(project: Project, trained: Trained) -> None:
    expected = project.accuracies(trained.reference_tree)
    assert len(expected) == 3
    assert project.accuracies(trained.tree) == expected


def test_console_lines_appear_once(project: Project, trained: Trained) -> None:
    first, second = trained.ranks.runs
    expected = project.masked(trained.reference.runs[0].stdout)
    judges.same_lines(expected, project.masked(first.stdout), judges.TOLERANCE)
    assert second.stdout == ""


def test_files_are_written_once(project: Project, trained: Trained, workshop: Workshop) -> None:
    assert {run.rank for run in trained.ranks.runs if run.files} == {0}
    trees = (trained.reference_tree, trained.tree)
    left, found = (judges.written(tree, workshop.sources(project)) for tree in trees)
    # momentum is a sum of gradients, small differences of large numbers
    judges.same_files(project, left, found, 1000 * judges.TOLERANCE)


def test_ranks_meet_in_the_same_places(trained: Trained) -> None:
    judges.same_collectives(trained.ranks.runs)
    assert not any(run.group_left_open for run in trained.ranks.runs)


def test_torchrun_with_one_rank_trains_as_plain_python(train: Train, workshop: Workshop) -> None:
    project, trained = CLASSIFICATION, train(CLASSIFICATION)
    tree, out = workshop.migrated(project, "1-rank"), workshop.observed(project, "1-rank")
    job = on_ranks(tree, project.argv(*project.plain), 1, out, "--global-order=2")
    judges.same_training(trained.reference, job)
    assert project.accuracies(tree) == project.accuracies(trained.reference_tree)
