"""Started by plain python, a migrated project is the original to the last bit."""

from __future__ import annotations

import pytest

from tests.support import compare
from tests.support.run import run_single
from tests.training import judges
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop

pytestmark = pytest.mark.training


@pytest.mark.parametrize(
    ("project", "extra"),
    [
        # dropout, so that the order of random draws counts too
        pytest.param(CLASSIFICATION, ("--dropout=0.2", "--clip-grad=1"), id="classification"),
        pytest.param(DATAPARALLEL, ("--arch=cnn_bn",), id="dataparallel"),
    ],
)
def test_one_process_prints_writes_and_computes_the_same(
    project: Project, extra: tuple[str, ...], workshop: Workshop
) -> None:
    argv = project.argv(*extra)
    before, after = workshop.original(project, "alone"), workshop.migrated(project, "alone-too")
    original = run_single(before, argv, workshop.folder / f"{project.folder}-alone-observed")
    migrated = run_single(after, argv, workshop.folder / f"{project.folder}-alone-observed")
    assert [original.status, migrated.status] == ["finished"] * 2, migrated.stderr
    assert len(original.steps) == 3 * project.steps_per_epoch
    assert compare.first_divergence(original, migrated) is None
    assert compare.training_samples(migrated) == compare.training_samples(original)
    assert project.masked(migrated.stdout) == project.masked(original.stdout)
    left = judges.written(before, workshop.original(project, "untouched"))
    assert f"out/{project.checkpoint}" in left
    source = workshop.migrated(project, "untouched-too")
    judges.same_files(project, left, judges.written(after, source))
