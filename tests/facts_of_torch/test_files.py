"""Two processes at one path."""

from __future__ import annotations

import pytest

from tests.facts_of_torch.seen import MARKS, Seen, seen_of

pytestmark = MARKS


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_of("files")


def test_lines_of_two_writers_are_lost_or_doubled(seen: Seen) -> None:
    first, second = seen["one_text"]
    assert first == second
    assert not {"0 aaaa", "0 bbbbb", "1 aaaa", "1 bbbbb"} <= {*first}, "6 lines were written"
    assert seen["one_appended"] == [["0", "0", "1", "1", "2", "2"]] * 2


def test_a_folder_is_made_by_another_in_between(seen: Seen) -> None:
    errors = sorted(error for missing, error, _ in seen["one_folder"] if missing)
    assert errors == ["", "FileExistsError"]
    assert [late for _, _, late in seen["one_folder"]] == ["", ""]


def test_who_comes_second_finds_nothing_to_remove(seen: Seen) -> None:
    assert [there for there, _ in seen["one_removal"]] == [True, True]
    assert sorted(error for _, error in seen["one_removal"]) == ["", "FileNotFoundError"]


def test_two_writers_damage_a_checkpoint(seen: Seen) -> None:
    assert any(seen["one_checkpoint"])


def test_equal_writers_damage_only_what_is_read_meanwhile(seen: Seen) -> None:
    (bad, _), (_, half) = seen["equal_checkpoints"]
    assert bad == 0
    assert half


def test_without_a_barrier_a_file_is_not_there_yet(seen: Seen) -> None:
    assert seen["read_before_it_is_written"] == [["", ""], ["FileNotFoundError", ""]]


def test_each_writer_of_tensorboard_has_a_file(seen: Seen) -> None:
    assert seen["event_files"] == [2, 2]


def test_clocks_are_read_at_other_times(seen: Seen) -> None:
    """Milliseconds apart: a name to the second is mostly the same, and sometimes not."""
    for found in seen["clocks"]:
        assert found["apart"]
        assert found["seconds"] < 5
