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


def test_gathered_rows_lie_rank_by_rank(seen: Seen) -> None:
    assert seen["partners"] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_reduced_loss_that_is_divided_halves_the_gradient(seen: Seen) -> None:
    for found in seen["reduced_loss"]:
        assert found == {"loss": 3.0, "gradients": [0.75], "warned": True}


def test_averaged_gradients_that_are_divided_are_half_of_them(seen: Seen) -> None:
    for before, after in seen["divided_again"]:
        assert (before, after) == ([1.5], [0.75])


def test_a_mean_of_averaged_gradients_is_what_they_were(seen: Seen) -> None:
    for before, after in seen["averaged_again"]:
        assert before == after == [1.5]


def test_reentrant_checkpoints_mark_twice_where_unused_ones_are_looked_for(seen: Seen) -> None:
    for found in seen["recomputed"]:
        assert "Expected to mark a variable ready only once" in found["reentrant, unused"]
        assert found["reentrant"] == found["not reentrant, unused"] == [1.5, 1.5]


def test_a_block_that_is_recomputed_twice_is_marked_twice(seen: Seen) -> None:
    for found in seen["recomputed"]:
        assert "Expected to mark a variable ready only once" in found["reentrant, twice"]
        assert found["not reentrant, twice"] == found["reentrant, twice, static"]
