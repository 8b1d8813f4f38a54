"""What is told after a migration: what is not as in one process, and the arguments of a proof."""

from __future__ import annotations

from pathlib import Path

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put_fixture


def test_what_is_not_as_in_one_process_and_what_a_launcher_passes(tmp_path: Path) -> None:
    entry = put_fixture("classification", tmp_path / "project")
    found = migrate([entry], Settings())
    told = "\n".join(found.differences)
    assert "DistributedSampler" in told
    assert "dropout (models.py:24)" in told
    assert "SyncBatchNorm" in told
    ((name, arguments),) = found.arguments
    assert name == "main_classification.py"
    assert arguments[:4] == ("--epochs", "10", "--batch-size", "64")
    assert arguments[-1] == "outputs/digits_cnn_seed42", "variables in a word are filled in"
