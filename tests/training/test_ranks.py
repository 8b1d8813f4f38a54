"""On several ranks a migrated project trains, evaluates, prints and writes as one process did.

The reference is the original, in one process, with the samples in the global order of the ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support import compare
from tests.support.recording import Run
from tests.training import judges
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop, edit, migrate
from tests.training.runs import Train, Trained, train_both

pytestmark = pytest.mark.training


@pytest.fixture(
    params=[
        pytest.param((CLASSIFICATION, 1, True), id="classification-1-float64"),
        pytest.param((CLASSIFICATION, 2, True), id="classification-2-float64"),
        pytest.param((CLASSIFICATION, 2, False), id="classification-2-float32"),
        pytest.param((CLASSIFICATION, 4, True), id="classification-4-float64"),
        pytest.param((DATAPARALLEL, 2, True), id="dataparallel-2-float64"),
        pytest.param((DATAPARALLEL, 2, False), id="dataparallel-2-float32"),
        pytest.param((DATAPARALLEL, 4, False), id="dataparallel-4-float32"),
    ],
    scope="module",
)
def case(request: pytest.FixtureRequest, train: Train) -> tuple[Project, Trained, float]:
    project, ranks, float64 = request.param
    return project, train(project, ranks, float64), 1e-10 if float64 else 1e-5


def test_parameters_after_every_step_are_those_of_one_process(
    case: tuple[Project, Trained, float],
) -> None:
    project, trained, tolerance = case
    assert len(trained.reference.steps) == 3 * project.steps_per_epoch
    compare.same_training(trained.reference, trained.runs, tolerance)
    compare.ranks_identical(trained.runs)


def test_every_step_shares_out_the_same_samples(case: tuple[Project, Trained, float]) -> None:
    _, trained, _ = case
    compare.samples_partition(trained.reference, trained.runs)
    shares = [[step.total() for step in compare.training_samples(run)] for run in trained.runs]
    assert all(share == shares[0] for share in shares)


def test_evaluation_has_the_same_accuracy(case: tuple[Project, Trained, float]) -> None:
    project, trained, _ = case
    expected = project.accuracies(trained.reference_tree)
    assert len(expected) == 3
    assert project.accuracies(trained.tree) == expected


def test_console_lines_appear_once(case: tuple[Project, Trained, float]) -> None:
    project, trained, tolerance = case
    expected = project.masked(trained.reference.stdout)
    shown = project.masked(compare.stdout_once(trained.runs))
    judges.same_lines(expected, shown, tolerance)
    compare.stderr_once(trained.runs)


def test_files_are_written_once(case: tuple[Project, Trained, float], workshop: Workshop) -> None:
    project, trained, tolerance = case
    assert set(compare.files_once(trained.runs).values()) == {0}
    trees = (trained.reference_tree, trained.tree)
    left, found = (judges.written(tree, workshop.sources(project)) for tree in trees)
    # momentum is a sum of gradients, small differences of large numbers
    judges.same_files(project, left, found, 1000 * tolerance)


def test_ranks_meet_in_the_same_collectives(case: tuple[Project, Trained, float]) -> None:
    _, trained, _ = case
    compare.same_collectives(trained.runs)
    assert not any(run.group_left_open for run in trained.runs)


@pytest.mark.parametrize(
    ("project", "place", "fraction", "batch"),
    [
        pytest.param(CLASSIFICATION, "data.py", "val_fraction=0.2", 63, id="classification"),
        pytest.param(DATAPARALLEL, "train_digits.py", "test_size=0.2", 126, id="dataparallel"),
    ],
)
def test_neither_data_set_divides_by_the_ranks(
    project: Project, place: str, fraction: str, batch: int, workshop: Workshop
) -> None:
    """358 images for evaluation and 1439 for training, on 3 ranks."""
    trees = (workshop.original(project, "ragged"), workshop.original(project, "ragged-ranks"))
    for tree in trees:
        edit(tree / place, (fraction, fraction.replace("0.2", "0.199")))
    migrate(project, trees[1])
    argv = project.argv(*project.plain, f"{project.batch}={batch}", epochs=2)
    trained = train_both(trees, argv, 3, workshop.observed(project, "ragged"))
    compare.same_training(trained.reference, trained.runs, 1e-5)
    compare.samples_partition(trained.reference, trained.runs)
    expected = project.accuracies(trees[0])
    assert len(expected) == 2
    assert project.accuracies(trees[1]) == expected
    for number in range(2):
        assert times_evaluated(trained.runs, number) in ([1] * 358, [3] * 358)
    shown = compare.stdout_once(trained.runs)
    judges.same_lines(project.masked(trained.reference.stdout), project.masked(shown), 1e-5)


def times_evaluated(runs: Sequence[Run], number: int) -> list[int]:
    """How often each sample came in that pass: on one rank, or on all of them."""
    seen = Counter(s for run in runs for s in compare.evaluation_samples(run)[number])
    return list(seen.values())
