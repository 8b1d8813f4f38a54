"""What Accelerate deals, divides and waits for."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("accelerated")


def test_gather_counts_what_fills_up_the_last_batches(seen: Seen) -> None:
    assert seen["gathered_evaluation"] == [{"gather": 48, "gather_for_metrics": 42}] * 2


def test_what_is_dealt_already_is_dealt_once_more(seen: Seen) -> None:
    assert seen["dealt_twice"] == [[[0, 2], [0, 1, 4, 5]], [[5, 7], [2, 3, 6, 7]]]


def test_backward_divides_by_the_micro_batches(seen: Seen) -> None:
    assert seen["backwards"] == [[[1.5], [6.0]]] * 2


def test_what_is_not_prepared_trains_otherwise_on_each_rank(seen: Seen) -> None:
    first, second = seen["not_prepared"]
    assert first["nothing"] == second["nothing"]
    for left in ("model", "optimizer"):
        assert first[left] != second[left]


def test_a_prepared_scheduler_steps_for_each_process(seen: Seen) -> None:
    assert seen["schedules"] == [{"fell after": 5, "rates": [0.3333, 0.0, 0.0]}] * 2


@pytest.mark.parametrize(
    "fact",
    """gather_on_one_rank reduce_on_one_rank prepare_on_one_rank meeting_on_one_rank
    numbered_state_on_one_rank""".split(),
)
def test_collectives_of_accelerate_wait_for_all_ranks(seen: Seen, fact: str) -> None:
    alone, _ = seen[fact]
    assert "imed out" in alone or "onnection" in alone


def test_states_of_whole_models_may_be_saved_by_one_rank(seen: Seen) -> None:
    first, second = seen["states_on_one_rank"]
    assert (first["then"], second["then"]) == (2.0, 2.0)
    assert first["random states"] == ["random_states_0.pkl"]
    assert (first["printed"], second["printed"]) == ("once", "")
    assert first["saved"] == ["own0.pt"]
