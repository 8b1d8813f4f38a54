"""The helpers that a project is given are read by whoever reviews its pull request: in ten minutes.

All lines count, of both files, with what is private and blank.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.names import HEADER_PREFIX
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import ENTRIES, put, put_fixture
from tests.training.test_gathered import MAIN, METRICS

BARS = dict.fromkeys(ENTRIES, 400) | {"classification": 300}


def lines_given(start: Path) -> int:
    """The lines of the copy that migrate adds."""
    outcome = migrate([start], Settings())
    assert not outcome.refusals, [refusal.message for refusal in outcome.refusals]
    texts = [change.after.decode() for change in outcome.changes if change.before is None]
    copies = [text for text in texts if text.startswith(HEADER_PREFIX)]
    assert copies
    return sum(len(text.splitlines()) for text in copies)


@pytest.mark.parametrize("name", BARS)
def test_a_fixture(name: str, tmp_path: Path) -> None:
    assert lines_given(put_fixture(name, tmp_path / name)) <= BARS[name]


def test_three_scripts_that_share_a_copy(tmp_path: Path) -> None:
    put_fixture("vision-segmentation", tmp_path / "vision")
    assert lines_given(tmp_path / "vision") <= 400


def test_a_project_with_every_kind_of_metric(tmp_path: Path) -> None:
    put({"main.py": MAIN, "metrics.py": METRICS}, tmp_path)
    assert lines_given(tmp_path / "main.py") <= 400
