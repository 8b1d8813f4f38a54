"""Started by plain python, a migrated project is the original to the last bit."""

from __future__ import annotations

import pytest

from ddpify.verify.recording import Fetch, RunRecord
from tests.training import judges
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop
from tests.training.runs import one_process, side_by_side

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
    jobs = side_by_side(
        lambda: one_process(before, argv, workshop.observed(project, "alone")),
        lambda: one_process(after, argv, workshop.observed(project, "alone-too")),
    )
    original, migrated = (job.runs[0] for job in jobs)
    assert [original.status, migrated.status] == ["finished"] * 2, migrated.stderr
    assert len(original.steps) == 3 * project.steps_per_epoch
    judges.same_bits(original, migrated)
    assert samples(migrated) == samples(original)
    assert project.masked(migrated.stdout) == project.masked(original.stdout)
    left, found = (judges.written(tree, workshop.sources(project)) for tree in (before, after))
    assert f"out/{project.checkpoint}" in left
    judges.same_files(project, left, found)


def samples(run: RunRecord) -> list[tuple[int | str, ...]]:
    """Of every batch, for training and for evaluation."""
    return [event.samples for event in run.events if isinstance(event, Fetch)]
