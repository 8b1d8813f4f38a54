"""Which gradients DistributedDataParallel averages, and of which losses."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("gradients")


def test_means_are_right_sums_a_half_and_means_over_a_count_neither(seen: Seen) -> None:
    for found in seen["losses"]:
        assert found["mean"] == [1.0, 1.0]
        assert found["sum"] == found["ignored, sum"] == [0.5, 0.5]
        low, high = found["ignored"]
        assert low < 0.9
        assert high > 1.1


def test_no_sync_saves_reductions_where_the_forward_is_under_it(seen: Seen) -> None:
    for found in seen["accumulation"]:
        reductions = {place: count for place, (count, _) in found.items()}
        assert reductions == {"": 8, "backward": 8, "forward": 2, "forward backward": 2}
        assert {gradient for _, gradient in found.values()} == {6.0}


def test_a_sync_that_is_one_late_leaves_local_gradients(seen: Seen) -> None:
    assert seen["one_late"] == [[4.5, 4.5], [7.5, 7.5]]


def test_a_window_that_is_left_over_goes_into_the_next_epoch(seen: Seen) -> None:
    first, second = seen["window_left_over"]
    assert first["steps"] == second["steps"] == [6.0, 6.0, 9.0, 6.0]
    assert (first["left"], second["left"]) == ([2.0, 2.0], [4.0, 4.0])


def test_gradients_add_up(seen: Seen) -> None:
    assert seen["not_divided"] == [4.0, 4.0]


def test_clipped_before_unscaling_a_step_is_one_by_the_scale(seen: Seen) -> None:
    for unscaled, with_1024, by_default in seen["clipped_before_unscaling"]:
        assert unscaled == pytest.approx(1, abs=1e-5)
        assert with_1024 == pytest.approx(1 / 1024, abs=1e-6)
        assert by_default == pytest.approx(1 / 65536, abs=1e-6)


def test_a_scaler_that_has_scaled_nothing_refuses_to_step(seen: Seen) -> None:
    for error in seen["scaler_that_scaled_nothing"]:
        assert error.startswith("AssertionError: Attempted step but _scale is None")


def test_past_the_wrapper_gradients_are_local_unless_a_forward_went_before(seen: Seen) -> None:
    assert seen["bypassed"] == [[[1.0], [1.0], [1.5]], [[2.0], [2.0], [1.5]]]


def test_the_first_backward_behind_a_forward_is_averaged(seen: Seen) -> None:
    for rank, found in enumerate(seen["several_backwards"]):
        assert found["sum"] == found["in turn"] == [4.5]
        assert found["two forwards"] == found["one forward"] == [[3.5], [5.5]][rank]


def test_autograd_grad_is_not_averaged(seen: Seen) -> None:
    assert seen["asked_for"] == [1.0, 2.0]


def test_all_gather_has_no_gradient(seen: Seen) -> None:
    for rank, found in enumerate(seen["gathered"]):
        assert found["requires_grad"] == [False, False]
        assert "does not require grad" in found["loss"], "an error, where nothing else is trained"
        assert found["one side"] == [[3.0, 4.0], [6.0, 10.0]][rank]


def test_a_reduced_loss_that_is_divided_halves_the_gradient(seen: Seen) -> None:
    for found in seen["reduced_loss"]:
        assert found == {"loss": 3.0, "gradients": [0.75], "warned": True}


def test_reentrant_checkpoints_mark_twice_where_unused_ones_are_looked_for(seen: Seen) -> None:
    for found in seen["recomputed"]:
        assert "Expected to mark a variable ready only once" in found["reentrant, unused"]
        assert found["reentrant"] == found["not reentrant, unused"] == [1.5, 1.5]


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
