"""Lightning's and Fabric's collectives wait for all processes."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytest.importorskip("lightning")
pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("lightning_waits")


def test_should_stop_is_of_one_process(seen: Seen) -> None:
    first, second = seen["stopped_by_one"]
    assert first == [1, ""]
    assert "imeout" in second[1] or "onnection" in second[1]


def test_a_step_that_one_process_leaves_out_is_an_error(seen: Seen) -> None:
    assert "returning None in distributed training is not supported" in seen["skipped"][0]


@pytest.mark.parametrize(
    "fact",
    """saved_by_one folder_of_one synced_by_one fabric_setup fabric_barrier fabric_save
    fabric_load fabric_all_gather""".split(),
)
def test_collectives_of_lightning_wait_for_all_ranks(seen: Seen, fact: str) -> None:
    assert "imed out" in seen[fact][0]
