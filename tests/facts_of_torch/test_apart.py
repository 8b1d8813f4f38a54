"""Steps that ranks do not take alike: other weights, wrong pairs, or the end."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("apart")


def test_line_searches_take_each_ranks_number_of_backwards(seen: Seen) -> None:
    first, second = seen["line_search"]
    assert first["weights"] != second["weights"]
    assert first["error"] or second["error"]


def test_what_one_rank_updates_stays_as_it_was_on_the_other(seen: Seen) -> None:
    first, second = seen["average_of_one_rank"]
    assert first["weight"] == second["weight"]
    assert (first["moved"] != 0, second["moved"]) == (True, 0.0)


def test_a_rate_of_one_rank_makes_other_weights_of_equal_gradients(seen: Seen) -> None:
    assert seen["rate_of_one_rank"] == [[1.5, 0.835], [1.5, 0.7]]


def test_plateaus_are_each_ranks_own(seen: Seen) -> None:
    assert seen["plateau_of_one_rank"] == [[0.0001, 1.5, 0.6835], [0.1, 1.5, 0.4]]


def test_a_layer_that_one_rank_leaves_out_stops_the_next_step(seen: Seen) -> None:
    first, second = seen.errors("random_branch")
    assert "onnection" in first
    assert "Expected to have finished reduction in the prior iteration" in second
    assert seen["random_branch_that_is_looked_for"] == [[1.5, 0.5]] * 2


def test_a_step_more_waits_or_meets_something_else(seen: Seen) -> None:
    assert [rank.waited for rank in seen.ranks("uneven_steps")] == [True, False]
    assert seen["uneven_steps_meet_a_metric"] == [[10.5, 10.0], [1.5, 10.5]], "1.5, 20 are right"


def test_join_lets_short_ranks_answer(seen: Seen) -> None:
    assert seen["joined"] == [[0.5], [1.5]], "the fifth is rank 0's 1, over both ranks"


def test_a_step_that_is_left_out_pairs_all_later_ones_wrong(seen: Seen) -> None:
    assert seen["step_left_out"] == [[5.5, 6.5]] * 2, "6 is right"
