"""What puts shards together waits for all ranks."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS
MIXED = "got mixed torch.Tensor and DTensor"


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("sharded_alone")


@pytest.mark.parametrize(
    "fact",
    """full_tensor_on_one_rank model_state_on_one_rank checkpoint_on_one_rank
    clipping_on_one_rank consolidation_on_one_rank state_of_fsdp1_on_one_rank""".split(),
)
def test_what_puts_shards_together_waits_for_all_ranks(seen: Seen, fact: str) -> None:
    assert [rank.waited for rank in seen.ranks(fact)] == [True, False]


def test_repr_and_state_dict_do_not_communicate(seen: Seen) -> None:
    assert seen["shown_on_one_rank"] == [2.0, 2.0]


def test_blocks_are_gathered_in_each_forward_and_a_root_in_the_first(seen: Seen) -> None:
    """Under no_grad, with a batch more on rank 0."""
    assert seen.ranks("uneven_evaluation")[0].waited
    assert seen["uneven_evaluation_of_a_root"] == [2.0, 2.0]
