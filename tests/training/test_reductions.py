"""Under ``--strategy fsdp`` an optimizer step reduces each sharded group's gradients once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ddpify.settings import Settings
from ddpify.verify.recording import RunRecord
from tests.projects import migrated, put_fixture
from tests.training.projects import edit
from tests.training.runs import on_ranks

pytestmark = [pytest.mark.training, pytest.mark.timeout(300)]

SYNC = '    getattr(inner, "set_requires_gradient_sync", bool)(sync)'
ACCUMULATED = 4  # micro-batches


@pytest.mark.parametrize("each_backward", [False, True], ids=["right", "never-told"])
@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("ladder-03_accum", 1),
        pytest.param("text_classification", 3, marks=pytest.mark.thorough),
    ],
)
def test_one_reduce_scatter_of_each_group_in_a_step(
    name: str, groups: int, each_backward: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCHS", "1")
    entry = put_fixture(name, tmp_path / "project")
    migrated(entry, Settings(strategy="fsdp"))
    if each_backward:  # the test would see it
        edit(entry.parent / "ddp_utils.py", (SYNC, SYNC.replace("(sync)", "(True)")))
    job = on_ranks(entry.parent, [entry.name], 2, tmp_path / "out")
    assert job.finished, job.runs[0].stderr
    for run in job.runs:
        assert run.held is not None
        assert run.held.groups == groups
        wanted = groups * (ACCUMULATED if each_backward else 1)
        assert reductions(run) == [wanted] * len(run.steps)


def reductions(run: RunRecord) -> list[int]:
    """Before each step; what follows the last one is of a block that is not complete."""
    found = Counter(
        call.steps for call in run.collectives if call.fsdp and "reduce_scatter" in call.name
    )
    return [found[number] for number in range(len(run.steps))]
