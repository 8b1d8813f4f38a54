"""Collectives are paired by their order, whatever ranks give them."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS
ABORT = "op.preamble.length <= op.nbytes"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("collectives")


def test_those_in_place_return_none_and_the_functional_ones_tensors(seen: Seen) -> None:
    assert seen["returned"] == [{"not None": [], "handle": True}] * 2
    assert seen["functional_ones"] == [[2.0, 2.0]] * 2


def test_without_a_group_all_of_them_say_so(seen: Seen) -> None:
    for found in seen["without_a_group"]:
        for said in found.values():
            assert "Default process group has not been initialized" in said


def test_nccl_stops_without_gpus(seen: Seen) -> None:
    for said in seen["nccl_without_gpus"]:
        assert said == "RuntimeError: Distributed package doesn't have NCCL built in"


def test_the_nth_of_one_rank_meets_the_nth_of_the_other(seen: Seen) -> None:
    assert seen["cross_matched"] == [111.0, 110.0], "21 is right"
    assert seen["continued"] == seen["swallowed"] == [[11.0, 13.0]] * 2, "12 is right"
    first, second = seen["stopped_by_the_clock"]
    assert second == [3.0, ""], "2 is right"
    assert first[1] == "RuntimeError"


@pytest.mark.parametrize("fact", ["unmatched", "barriers_in_one_arm", "broken_off"])
def test_one_that_nobody_meets_waits_for_the_limit(seen: Seen, fact: str) -> None:
    assert [rank.waited for rank in seen.ranks(fact)] == [True, False]


def test_a_peer_that_has_ended_is_noticed(seen: Seen) -> None:
    assert "onnection" in seen.errors("unmatched_at_the_end")[0]


def test_a_barrier_in_each_arm_is_one_barrier(seen: Seen) -> None:
    assert seen["rank_0_goes_first"] == [True, True]


def test_reduce_leaves_others_with_their_own(seen: Seen) -> None:
    assert seen["reduced"] == [3.0, 2.0]


def test_a_mean_of_means_is_another_number(seen: Seen) -> None:
    assert seen["mean_of_means"] == [[0.375, pytest.approx(0.6)]] * 2


def test_a_group_that_one_rank_makes_waits_at_the_store(seen: Seen) -> None:
    assert seen["group_of_one_rank"][0].startswith("DistStoreError: wait timeout")


def test_a_group_of_some_renames_the_next(seen: Seen) -> None:
    assert seen["another_group_before"][0].startswith("DistStoreError: wait timeout")


def test_members_alone_may_make_it_but_further_ones_of_the_kind_do_not_meet(seen: Seen) -> None:
    assert seen["group_of_members_alone"] == [2.0, 2.0]
    for local, counted in seen["group_after_that_of_members_alone"]:
        assert local.startswith("DistStoreError: wait timeout")
        assert counted == ""


def test_both_receive_first_and_nobody_sends(seen: Seen) -> None:
    assert seen.hung("both_receive_first")
    assert seen["in_good_order"] == [[2.0] * 4, [1.0] * 4]


def test_other_types_and_lengths_abort_or_give_other_numbers(seen: Seen) -> None:
    assert seen.ranks("a_double_meets_a_float")[1].ended == "signal 6"
    assert ABORT in seen.ranks("a_double_meets_a_float")[1].log
    assert seen["a_float_meets_an_integer"] == [1.0, 1065353216]
    assert seen.ranks("gathered_lengths_differ")[0].ended == "signal 6"
    assert seen["sent_lengths_differ"] == [[7.0, 7.0], [7.0, 7.0, 6.0]]
    short, long = seen.ranks("lengths_differ")
    assert (short.value, long.failed) == ([2.0, 2.0], True)


def test_a_list_that_is_written_in_the_call_is_lost(seen: Seen) -> None:
    assert seen["lists_of_objects"] == [["rank 0's"] * 2, [None, "rank 0's"]]


def test_lists_of_objects_of_other_lengths(seen: Seen) -> None:
    assert ABORT in seen.ranks("lists_of_other_lengths")[1].log
    assert seen.ranks("longer_lists_elsewhere")[1].failed


def test_one_tensor_n_times_has_the_last(seen: Seen) -> None:
    assert seen["aliased"] == [[[2.0, 2.0], [1.0, 2.0]]] * 2


def test_before_the_wait_it_may_be_the_old_value(seen: Seen) -> None:
    (before, after), (_, other) = seen["not_awaited"]
    assert (before, after, other) == (1.0, 3.0, 3.0)


def test_each_rank_sends_and_nobody_receives(seen: Seen) -> None:
    assert seen.hung("each_sends")
    assert seen.ranks("each_sends_to_itself")[1].waited


def test_each_rank_makes_half_of_the_entries(seen: Seen) -> None:
    assert seen["other_operations"] == [[500, 500]] * 2
