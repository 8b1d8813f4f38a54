"""Gradients add up: over micro-batches, by a scale, and under no_sync()."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("windows")


def test_no_sync_saves_reductions_where_the_forward_is_under_it(seen: Seen) -> None:
    for found in seen["accumulation"]:
        reductions = {place: count for place, (count, _) in found.items()}
        assert reductions == {"": 8, "backward": 8, "forward": 2, "forward backward": 2}
        assert {gradient for _, gradient in found.values()} == {6.0}


def test_a_sync_that_is_one_late_leaves_local_gradients(seen: Seen) -> None:
    assert seen["one_late"] == [[4.5, 4.5], [7.5, 7.5]]


def test_a_window_that_is_left_over_goes_into_the_next_epoch(seen: Seen) -> None:
    first, second = seen["window_left_over"]
    assert first["steps"] == second["steps"] == [6.0, 6.0, 9.0, 6.0]
    assert (first["left"], second["left"]) == ([2.0, 2.0], [4.0, 4.0])


def test_gradients_add_up(seen: Seen) -> None:
    assert seen["not_divided"] == [4.0, 4.0]


def test_clipped_before_unscaling_a_step_is_one_by_the_scale(seen: Seen) -> None:
    for unscaled, with_1024, by_default in seen["clipped_before_unscaling"]:
        assert unscaled == pytest.approx(1, abs=1e-5)
        assert with_1024 == pytest.approx(1 / 1024, abs=1e-6)
        assert by_default == pytest.approx(1 / 65536, abs=1e-6)


def test_a_scaler_that_has_scaled_nothing_refuses_to_step(seen: Seen) -> None:
    for error in seen["scaler_that_scaled_nothing"]:
        assert error.startswith("AssertionError: Attempted step but _scale is None")
