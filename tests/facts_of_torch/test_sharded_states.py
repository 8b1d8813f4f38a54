"""What states and files of shards hold, and how they are loaded."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS
MIXED = "got mixed torch.Tensor and DTensor"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("sharded_states")


def test_a_file_of_one_rank_has_its_rows(seen: Seen) -> None:
    for found in seen["saved_shards"]:
        assert found["kinds"] == [True, True]
        assert found["rows"] == [4, 8]
        assert MIXED in found["loaded"][0]
        loaded, kind, used = found["assigned"]
        assert (loaded, kind) == ("", "DTensor")
        assert MIXED in used


def test_whole_states_are_on_all_ranks_or_on_rank_0(seen: Seen) -> None:
    assert seen["whole_states"] == [[["layer.weight"]] * 2, [["layer.weight"], []]]


def test_the_single_setters_load_and_the_combined_one_hangs(seen: Seen) -> None:
    for weight, alone in seen["loaded_from_rank_0"]:
        assert weight == seen["loaded_from_rank_0"][0][0]
        assert "full_state_dict must be True" in alone
    assert seen.ranks("loaded_at_once")[0].waited


def test_zero_has_moments_of_its_share_until_they_are_consolidated(seen: Seen) -> None:
    (own, before, after, both), (other, second, _, _) = seen["zero_states"]
    assert (own, other, both) == (1, 1, 2)
    for error in (before, second):
        assert "Optimizer state has not been consolidated on this rank" in error
    assert after == ""


def test_what_rank_0_loads_is_sent_by_ddp_at_the_wrap_alone(seen: Seen) -> None:
    first, second = seen["loaded_by_one_rank"]
    assert first["before DDP"] == second["before DDP"] == [5.0]
    assert (first["after DDP"], second["after DDP"]) == ([3.5], [-0.5])
    mixed = [5.0] * 4 + [1.0] * 4
    assert first["before fully_shard"] == second["before fully_shard"] == mixed
