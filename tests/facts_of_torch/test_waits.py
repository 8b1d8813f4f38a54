"""What asynchronous calls, other groups and metrics wait for."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("waits")


def test_gloo_does_several_things_at_once(seen: Seen) -> None:
    assert [one[:2] for one in seen["last_handle_alone"]] == [[False, 3.0]] * 2
    assert all(one[2] != one[3] == 3.0 for one in seen["last_handle_alone"])


def test_another_group_of_both_is_another_meeting(seen: Seen) -> None:
    assert all(rank.failed for rank in seen.ranks("each_in_another_group"))


def test_lists_of_another_type_or_length_are_refused(seen: Seen) -> None:
    assert all("different dtypes" in error for error, _ in seen["gathered_into_integers"])
    other = [error for error in seen["list_of_three"] if "expected length 2, got 3" not in error]
    assert not other


def test_lists_of_objects_wait_to_be_received(seen: Seen) -> None:
    assert seen.hung("objects_sent_first")


def test_what_a_root_does_not_have_is_lost(seen: Seen) -> None:
    assert seen["root_without_objects"] == [[None]] * 2


def test_torch_clips_fsdp1_by_the_norm_of_a_shard(seen: Seen) -> None:
    first, second = seen["clipped_shards"]
    assert [first["torch"][0], second["torch"][0]] == [3.0, 4.0]
    assert [first["wrapper"][0], second["wrapper"][0]] == [5.0, 5.0]


def test_metrics_of_torchmetrics_wait_for_all_ranks(seen: Seen) -> None:
    assert [rank.waited for rank in seen.ranks("metric_of_one_rank")] == [True, False]


def test_metrics_that_are_told_or_know_already_do_not_wait(seen: Seen) -> None:
    assert seen["metrics_that_do_not_wait"] == [[0.0, 0.5, 0.5], [None, 0.5, None]]
    assert seen["metric_before_the_group"] == [0.0, None]


def test_fabric_reduces_the_tensor_itself(seen: Seen) -> None:
    assert seen["reduced_by_fabric"] == [[3.0, 3.0]] * 2
