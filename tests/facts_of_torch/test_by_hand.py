"""What DistributedDataParallel does for a program: equal weights, averages, and when it refuses."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("by_hand")


def test_a_plain_attribute_is_not_sent(seen: Seen) -> None:
    first, second = seen["drawn_constant"]
    assert first["weight"] == second["weight"]
    assert first["drawn"] != second["drawn"]


def test_unequal_weights_stay_as_far_apart(seen: Seen) -> None:
    first, second = seen["unequal_start"]
    apart = [one - other for one, other in zip(first, second, strict=True)]
    assert apart[0] != 0
    assert apart == pytest.approx([apart[0]] * 4, abs=1e-6)


def test_a_module_without_a_parameter_to_train_is_refused(seen: Seen) -> None:
    for rank in seen["nothing_to_train"]:
        for error in rank:
            assert error.startswith("RuntimeError: DistributedDataParallel is not needed when")


def test_gradients_clipped_first_are_others(seen: Seen) -> None:
    assert seen["clipped_first"] == [[1.25, 1.5], [1.25, 1.5]]


def test_what_a_hook_gives_is_not_divided(seen: Seen) -> None:
    assert seen["summing_hook"] == [[3.0, 1.5], [3.0, 1.5]]
