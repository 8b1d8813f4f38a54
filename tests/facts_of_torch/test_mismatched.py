"""Ranks that give a collective other things get other numbers, or an abort."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS
ABORT = "op.preamble.length <= op.nbytes"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("mismatched")


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


@pytest.mark.parametrize("fact", ["a_hook_on_one_rank", "unused_on_one_rank"])
def test_wrappers_that_send_other_things_fail(seen: Seen, fact: str) -> None:
    assert any(rank.failed for rank in seen.ranks(fact))


def test_a_barrier_that_is_begun_holds_nobody_up(seen: Seen) -> None:
    passed, waited = seen["a_barrier_that_is_begun"][0]
    assert passed < 0.5 < waited
