"""On several ranks a migrated project trains, evaluates, prints and writes as one process did.

The reference is the original, in one process, with the samples in the global order of the ranks.
"""

from __future__ import annotations

import pytest

from tests.support import compare
from tests.support.run import run_distributed, run_single
from tests.training import judges
from tests.training.conftest import Train, Trained
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop, edit, migrate

pytestmark = pytest.mark.training


@pytest.fixture(
    params=[
        pytest.param((CLASSIFICATION, 1, True), id="classification-1-float64"),
        pytest.param((CLASSIFICATION, 2, True), id="classification-2-float64"),
        pytest.param((CLASSIFICATION, 2, False), id="classification-2-float32"),
        pytest.param((CLASSIFICATION, 4, True), id="classification-4-float64"),
        pytest.param((CLASSIFICATION, 4, False), id="classification-4-float32"),
        pytest.param((DATAPARALLEL, 1, True), id="dataparallel-1-float64"),
        pytest.param((DATAPARALLEL, 2, True), id="dataparallel-2-float64"),
        pytest.param((DATAPARALLEL, 2, False), id="dataparallel-2-float32"),
        pytest.param((DATAPARALLEL, 4, True), id="dataparallel-4-float64"),
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
    epochs = [sum(c.total() for c in compare.training_samples(run)) for run in trained.runs]
    assert len(set(epochs)) == 1


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


def test_files_are_written_once(
    case: tuple[Project, Trained, float], workshop: Workshop
) -> None:
    project, trained, tolerance = case
    assert set(compare.files_once(trained.runs).values()) == {0}
    left = judges.written(trained.reference_tree, workshop.folder / f"{project.folder}-as-migrated")
    found = judges.written(trained.tree, workshop.folder / f"{project.folder}-as-migrated")
    # momentum is a sum of gradients, small differences of large numbers
    judges.same_files(project, left, found, 1000 * tolerance)


def test_ranks_meet_in_the_same_collectives(case: tuple[Project, Trained, float]) -> None:
    _, trained, _ = case
    compare.same_collectives(trained.runs)
    assert not any(run.group_left_open for run in trained.runs)


@pytest.mark.parametrize(
    ("project", "place", "sizes"),
    [
        pytest.param(CLASSIFICATION, "data.py", ("val_fraction=0.2", "63"), id="classification"),
        pytest.param(
            DATAPARALLEL, "train_digits.py", ("test_size=0.2", "126"), id="dataparallel"
        ),
    ],
)
def test_neither_data_set_divides_by_the_ranks(
    project: Project, place: str, sizes: tuple[str, str], workshop: Workshop
) -> None:
    """358 images for evaluation and 1439 for training, on 3 ranks."""
    fraction, batch = sizes
    argv = project.argv(*project.plain, f"{project.batch}={batch}", epochs=2)
    trees = [workshop.original(project, f"ragged-{name}") for name in ("alone", "ranks")]
    for tree in trees:
        edit(tree / place, (fraction, f"{fraction}"[:-1] + "199"))
    migrate(project, trees[1])
    out = workshop.folder / f"observed-{project.folder}-ragged"
    reference = run_single(trees[0], argv, out / "1", global_order=3)
    runs = run_distributed(trees[1], argv, 3, out / "n")
    compare.same_training(reference, runs, 1e-5)
    compare.samples_partition(reference, runs)
    assert {len(seen) for seen in compare.evaluation_samples(reference)} == {358}
    assert len(project.accuracies(trees[0])) == 2
    assert project.accuracies(trees[1]) == project.accuracies(trees[0])
    judges.same_lines(project.masked(reference.stdout), project.masked(runs[0].stdout), 1e-5)


@pytest.mark.parametrize(
    ("project", "above"),
    [
        pytest.param(CLASSIFICATION, "        scheduler.step()\n", id="classification"),
        pytest.param(DATAPARALLEL, "    # Save checkpoint.\n", id="dataparallel"),
    ],
)
def test_ranks_decide_on_the_same_evaluation_with_batch_norm(
    project: Project, above: str, workshop: Workshop
) -> None:
    """Each rank's running statistics are of its own samples: a branch on a metric would diverge."""
    names = {"classification": "val_loss, val_acc", "classification_dataparallel": "test_loss, acc"}
    tree = workshop.migrated(project, "batch-norm")
    indent = above[: len(above) - len(above.lstrip())]
    shown = f"{indent}print('decides on', {names[project.folder]})\n"
    edit(tree / project.entry, (above, shown + above))
    out = workshop.folder / f"observed-{project.folder}-batch-norm"
    runs = run_distributed(tree, project.argv(epochs=2), 2, out)
    assert {run.status for run in runs} == {"finished"}, runs[0].stderr + runs[1].stderr
    decisions = [[line for line in run.stdout.splitlines() if "decides" in line] for run in runs]
    assert len(decisions[0]) == 2
    assert decisions[1] == decisions[0]
    compare.same_collectives(runs)
    compare.ranks_identical(runs)
