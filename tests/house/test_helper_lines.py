"""The helpers that a project is given are read by whoever reviews its pull request: in ten minutes.

All lines count, of both files, with what is private and blank. A law (``tests/laws``) has the bar
for each fixture and example; here are the smallest project, and those that are given most.
"""

from __future__ import annotations

from pathlib import Path

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import helper_lines, put, put_fixture
from tests.training.test_gathered import MAIN, METRICS


def lines_given(start: Path) -> int:
    """The lines of helpers that are added to a project that has none."""
    outcome = migrate([start], Settings())
    assert not outcome.refusals, [refusal.message for refusal in outcome.refusals]
    lines = helper_lines(outcome)
    assert lines
    return lines


def test_classification(tmp_path: Path) -> None:
    assert lines_given(put_fixture("classification", tmp_path / "project")) <= 365


def test_three_scripts_that_share_a_copy(tmp_path: Path) -> None:
    put_fixture("vision-segmentation", tmp_path / "project")
    assert lines_given(tmp_path / "project") <= 450


def test_every_kind_of_metric(tmp_path: Path) -> None:
    put({"main.py": MAIN, "metrics.py": METRICS}, tmp_path)
    assert lines_given(tmp_path / "main.py") <= 400
