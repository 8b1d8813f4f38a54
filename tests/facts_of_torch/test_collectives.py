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
