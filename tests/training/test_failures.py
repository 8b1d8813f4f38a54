"""What goes wrong ends at once and says why; what is broken on purpose is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import compare
from tests.support.recording import Run
from tests.support.run import run_distributed
from tests.training import judges
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop, edit
from tests.training.runs import Train, Trained

pytestmark = pytest.mark.training
MAIN = "main_classification.py"
NEXT_EPOCH = "        set_epoch(train_loader, epoch)\n"


def test_a_hang_fails_in_seconds(workshop: Workshop) -> None:
    tree = workshop.migrated(CLASSIFICATION, "hang")
    lone = "        if is_main_process():\n            barrier()\n"
    edit(
        tree / MAIN,
        (NEXT_EPOCH, NEXT_EPOCH + lone),
        ("from ddp_utils import (\n", "from ddp_utils import (\n    barrier,\n"),
    )
    out = workshop.observed(CLASSIFICATION, "hang")
    argv = CLASSIFICATION.argv(epochs=1)
    runs = run_distributed(tree, argv, 2, out, timeout=3, limit=60)  # else JobTimeout
    assert runs[0].returncode != 0
    assert any("Error" in run.status for run in runs), [run.status for run in runs]


@pytest.mark.parametrize(
    ("project", "ranks", "size", "use"),
    [
        pytest.param(CLASSIFICATION, 2, 51, "50 or 52", id="classification"),
        pytest.param(DATAPARALLEL, 2, 127, "126 or 128", id="dataparallel"),
    ],
)
def test_a_batch_that_cannot_be_split_is_refused(
    project: Project, ranks: int, size: int, use: str, workshop: Workshop
) -> None:
    tree = workshop.migrated(project, "indivisible")
    out = workshop.observed(project, "indivisible")
    runs = run_distributed(tree, project.argv(f"{project.batch}={size}"), ranks, out)
    sentence = f"batch size {size} cannot be split over {ranks} ranks: use {use}"
    said = [run.stderr.count(sentence) for run in runs]
    assert runs[0].returncode == 1
    assert said == [1] + [0] * (ranks - 1), runs[0].stderr
    assert not any("Traceback" in run.stderr for run in runs)
    assert not any(run.steps or run.count("fetch") for run in runs)
    assert judges.written(tree, workshop.sources(project)) == {}


@pytest.fixture(scope="module")
def broken(workshop: Workshop) -> tuple[Path, list[Run]]:
    """Four rewrites taken back that do not hide each other, in one launch."""
    tree = workshop.migrated(CLASSIFICATION, "broken")
    gate = '        if is_main_process():\n            with open(self.path, "a"'
    edit(
        tree / MAIN,
        (NEXT_EPOCH, ""),
        ("unwrap(model).state_dict()", "model.state_dict()"),
        ('if is_main_process():\n        print("=" * 60)', 'if True:\n        print("=" * 60)'),
    )
    edit(tree / "utils.py", (gate, gate.replace("is_main_process()", "True")))
    argv = CLASSIFICATION.argv(*CLASSIFICATION.plain)
    runs = run_distributed(tree, argv, 2, workshop.observed(CLASSIFICATION, "broken"))
    assert {run.status for run in runs} == {"finished"}, runs[0].stderr
    return tree, runs


@pytest.fixture(scope="module")
def sound(train: Train) -> Trained:
    return train(CLASSIFICATION, 2, False)


def test_a_missing_set_epoch_is_found(broken: tuple[Path, list[Run]], sound: Trained) -> None:
    with pytest.raises(AssertionError, match=r"^step 23: missing \d+ samples"):
        compare.samples_partition(sound.reference, broken[1])
    with pytest.raises(AssertionError, match=r"rank 0 leaves the reference at step 23 "):
        compare.same_training(sound.reference, broken[1], 1e-5)


def test_a_missing_unwrap_is_found(broken: tuple[Path, list[Run]], sound: Trained) -> None:
    expected, found = (CLASSIFICATION.load(tree) for tree in (sound.reference_tree, broken[0]))
    with pytest.raises(AssertionError, match=r"model: \['module\.features"):
        judges.same_content(expected["model"], found["model"], "model", 1.0)


def test_a_missing_gate_is_found(broken: tuple[Path, list[Run]]) -> None:
    with pytest.raises(AssertionError, match=r"rank 1 prints 4 lines, first: '={60}'"):
        compare.stdout_once(broken[1])
    with pytest.raises(AssertionError, match=r"out/log\.csv is changed by rank 0 and by rank 1"):
        compare.files_once(broken[1])
