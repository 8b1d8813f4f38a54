"""Groups are made by all ranks; messages need a sender; all need a process group."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS
ABORT = "op.preamble.length <= op.nbytes"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("groups")


def test_without_a_group_all_of_them_say_so(seen: Seen) -> None:
    for found in seen["without_a_group"]:
        for said in found.values():
            assert "Default process group has not been initialized" in said


def test_nccl_stops_without_gpus(seen: Seen) -> None:
    for said in seen["nccl_without_gpus"]:
        assert said == "RuntimeError: Distributed package doesn't have NCCL built in"


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
