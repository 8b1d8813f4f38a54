"""Messages and outputs of another type or length; groups and variables in turn."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("lengths")


def test_messages_carry_bytes(seen: Seen) -> None:
    assert seen["integers_received_as_floats"][1] < 1e-40
    assert seen["a_longer_buffer"] == [0.0, 4.0]
    assert seen.ranks("a_shorter_buffer")[1].ended == "signal 6"


def test_outputs_have_to_be_as_long_as_they_are_said_to_be(seen: Seen) -> None:
    assert all("RuntimeError" in one for one in seen["scattered_into_a_whole"])
    assert all("invalid tensor size" in one for one in seen["gathered_into_a_part"])


def test_own_counts_are_not_those_of_the_peers(seen: Seen) -> None:
    assert seen.ranks("own_counts")[0].failed


def test_in_two_groups_in_turn_both_wait(seen: Seen) -> None:
    assert seen.hung("groups_in_turn")


def test_variables_in_turn_are_exchanged(seen: Seen) -> None:
    assert seen["variables_in_turn"] == [[3.0, 5.0], [5.0, 3.0]]
