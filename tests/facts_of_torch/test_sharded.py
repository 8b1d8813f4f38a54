"""fully_shard: where weights are whole, what is averaged, and who has to call."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS
MIXED = "got mixed torch.Tensor and DTensor"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("sharded")


def test_the_object_stays_and_has_a_part_of_each_weight(seen: Seen) -> None:
    for found in seen["shards"]:
        assert found == {"same object": True, "class": "FSDPNet", "own rows": 4, "user's": True}
    assert seen["averaged"] == [[1.5], [1.5]]


@pytest.mark.parametrize("how", ["method", "forward", "layer"])
def test_past_the_model_weights_are_shards_or_gradients_local(seen: Seen, how: str) -> None:
    for rank, found in enumerate(seen["other_methods"]):
        before, between = found[how]
        assert MIXED in before
        assert between == [rank + 1.0], "right behind a forward of the model, without an error"
        assert found["registered"] == [1.5]


def test_behind_a_backward_weights_are_shards_again(seen: Seen) -> None:
    assert all(MIXED in error for error in seen["late_method"])


def test_an_optimizer_made_before_trains_nothing(seen: Seen) -> None:
    for found in seen["optimizer_before"]:
        assert found == {"before": [1.0], "gradients": [3.0], "after": [0.85]}
    assert seen["optimizer_before_fsdp1"] == [[1.0, 0.85]] * 2, "use_orig_params"


def test_item_of_a_reduction_is_this_ranks_part(seen: Seen) -> None:
    first, second = seen["parts_of_numbers"]
    whole = {"sum": 36.0, "mean": 4.5, "max": 8.0, "norm": 14.2829}
    assert first["whole"] == second["whole"] == whole
    assert first["item"] == {"sum": 10.0, "mean": 2.5, "max": 4.0, "norm": 5.4772}
    assert second["item"] == {"sum": 26.0, "mean": 6.5, "max": 8.0, "norm": 13.1909}
    assert first["clipped"] == second["clipped"] == 4.2426, "8 entries of 1.5"


def test_a_forward_between_backward_and_step_keeps_old_weights(seen: Seen) -> None:
    for found in seen["stale_weights"]:
        assert found == {
            "between": [1.0, 0.85],
            "not between": [0.85, 0.85],
            "reshard": [0.85, 0.85],
        }


def test_without_sync_no_weight_has_a_gradient(seen: Seen) -> None:
    for quiet, weights, after, no_sync in seen["never_reduced"]:
        assert (quiet, weights, after, no_sync) == ([None], [1.0], [4.5], False)


def test_fully_shard_sends_nothing(seen: Seen) -> None:
    first, second = seen["not_broadcast"]
    assert first["mixed"] == second["mixed"] == [first["own"][0], second["own"][1]]


def test_scalers_agree_but_for_a_plain_one_with_fsdp1(seen: Seen) -> None:
    assert seen["scaled"] == [[512.0, 1.0]] * 2
    first, second = seen["scaled_by_fsdp1"]
    assert (first["plain"], second["plain"]) == ([512.0, False], [1024.0, True])
    assert first["sharded"] == second["sharded"] == [512.0, False]
