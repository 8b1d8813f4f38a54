"""DistributedDataParallel sends buffers in the first forward, and behind one with gradients."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("buffers")


@pytest.mark.parametrize("after", ["wrap", "step"])
def test_with_gradients_each_forward_sends_buffers_in_eval_mode_too(seen: Seen, after: str) -> None:
    for found in seen["forwards"]:
        assert found[f"train after {after}"] == found[f"eval after {after}"] == [True] * 3


@pytest.mark.parametrize("after", ["wrap", "step"])
@pytest.mark.parametrize("where", ["train no_grad", "eval no_grad", "inference"])
def test_without_gradients_the_first_forward_does(seen: Seen, where: str, after: str) -> None:
    for found in seen["forwards"]:
        assert found[f"{where} after {after}"] == [True, False, False]


def test_no_forward_behind_one_under_no_sync_sends_buffers(seen: Seen) -> None:
    """Three under no_sync(), the one that is averaged, and the next."""
    assert seen["under_no_sync"] == [[True, False, False, False, True]] * 2


def test_the_first_step_behind_an_evaluation_sends_none(seen: Seen) -> None:
    assert seen["first_of_training_after_an_evaluation"] == [[[True, False], [False, True]]] * 2


def test_statistics_have_the_ranks_own_last_batch(seen: Seen) -> None:
    assert seen["own_statistics"] == [[1.0, 2.0], [2.0, 3.0]]


def test_unequal_evaluations_hang_with_gradients_alone(seen: Seen) -> None:
    assert seen["unequal_evaluations"] == [2.0, 2.0], "under no_grad both go on"
    assert seen.ranks("unequal_evaluations_with_gradients")[0].waited


def test_one_rank_alone_meets_what_the_others_send_next(seen: Seen) -> None:
    lost, aborted = seen.ranks("evaluation_meets_a_broadcast")
    assert (lost.failed, aborted.ended) == (True, "signal 6")
    assert "op.preamble.length <= op.nbytes" in aborted.log
    assert all(rank.failed for rank in seen.ranks("evaluation_meets_a_sum"))
    assert "onnection" in seen.errors("evaluation_meets_the_end")[0]
    assert seen.ranks("evaluation_of_one_rank_alone")[0].waited


def test_a_second_evaluation_of_one_rank_is_its_own_matter(seen: Seen) -> None:
    assert seen["second_evaluation_of_one_rank"] == [2.0, 2.0]


def test_the_next_step_makes_up_for_it_but_not_the_second_of_all(seen: Seen) -> None:
    assert seen["evaluation_that_the_next_step_makes_up_for"] == [2.0, 2.0]
    assert all(rank.failed for rank in seen.ranks("the_same_behind_the_first_step"))


def test_forwards_that_send_nothing(seen: Seen) -> None:
    for found in seen["quiet_forwards"]:
        assert set(found.values()) == {2.0}, found


def test_the_forward_behind_the_first_backward_agrees_on_buckets(seen: Seen) -> None:
    """With gradients; also of a model without buffers."""
    assert seen.hung("second_forward_without_buffers")


def test_a_sharded_forward_waits_for_all_ranks_under_no_grad_too(seen: Seen) -> None:
    assert seen.ranks("sharded_forward_of_one_rank")[0].waited


def test_a_second_forward_changes_what_the_first_has_saved(seen: Seen) -> None:
    """On the CPU without an error: the gradient is 5 for 1."""
    assert seen["two_forwards"] == [{"error": "", "sent": [True, True]}] * 2
    assert seen["two_forwards_that_use_the_buffer"] == [["", [5.0]]] * 2
