"""What goes wrong ends at once and says why."""

from __future__ import annotations

import pytest

from ddpify.verify.recording import Fetch
from tests.training import judges
from tests.training.projects import CLASSIFICATION, DATAPARALLEL, Project, Workshop, edit
from tests.training.runs import on_ranks

pytestmark = pytest.mark.training


def test_a_hang_fails_in_seconds(workshop: Workshop) -> None:
    tree = workshop.migrated(CLASSIFICATION, "hang")
    next_epoch = "        begin_epoch(train_loader, epoch)\n"
    lone = "        if is_main_process():\n            barrier()\n"
    edit(
        tree / CLASSIFICATION.entry,
        (next_epoch, next_epoch + lone),
        ("from ddp_utils import ", "from ddp_utils import barrier, "),
    )
    out = workshop.observed(CLASSIFICATION, "hang")
    job = on_ranks(tree, CLASSIFICATION.argv(epochs=1), 2, out, "--group-timeout=3")
    assert not job.hung
    assert job.returncode != 0
    assert any("Error" in run.status for run in job.runs), [run.status for run in job.runs]


@pytest.mark.parametrize(
    ("project", "size", "use"),
    [
        pytest.param(CLASSIFICATION, 51, "50 or 52", id="classification"),
        pytest.param(DATAPARALLEL, 127, "126 or 128", id="dataparallel"),
    ],
)
def test_a_batch_that_cannot_be_split_is_refused(
    project: Project, size: int, use: str, workshop: Workshop
) -> None:
    tree = workshop.migrated(project, "indivisible")
    out = workshop.observed(project, "indivisible")
    job = on_ranks(tree, project.argv(f"{project.batch}={size}"), 2, out)
    sentence = f"batch size {size} cannot be split over 2 ranks: use {use}"
    assert job.returncode == 1
    assert [run.stderr.count(sentence) for run in job.runs] == [1, 0], job.runs[0].stderr
    for run in job.runs:
        assert "Traceback" not in run.stderr
        assert not run.steps
        assert not any(isinstance(event, Fetch) for event in run.events)
    assert judges.written(tree, workshop.sources(project)) == {}
