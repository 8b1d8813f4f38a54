"""Messages without another side, orders of each process, what one rank alone has."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("messages")


def test_messages_with_other_tags_do_not_meet(seen: Seen) -> None:
    assert seen.hung("other_tags")


def test_a_message_that_nobody_receives_is_waited_for(seen: Seen) -> None:
    first, second = seen["one_message_more"]
    assert "imed out" in first
    assert second == ""


def test_a_key_that_nobody_sets_is_waited_for(seen: Seen) -> None:
    first, second = seen["another_key"]
    assert first == ""
    assert "imed out" in second or "imeout" in second


def test_what_is_collected_is_none_elsewhere(seen: Seen) -> None:
    first, second = seen["collected"]
    assert first == ""
    assert second == "TypeError: 'NoneType' object is not iterable"


def test_in_an_order_of_its_own_each_rank_sums_others(seen: Seen) -> None:
    assert seen["own_order"] == [21.0, 12.0]


def test_a_set_of_texts_has_an_order_in_each_process(seen: Seen) -> None:
    first, second = seen["order_of_a_set"]
    assert first != second
    assert sorted(first.strip().split(",")) == sorted(second.strip().split(","))


def test_a_file_that_one_rank_removes_is_gone_for_who_is_late(seen: Seen) -> None:
    first, second = seen["removed_when_read"]
    assert first == ""
    assert second.startswith("FileNotFoundError")
