"""Folders that are named by the clock are the same folder in both runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ddpify.verify.identity import in_text, renamed, same_names
from tests.verify.factories import job, reference

ONE = ("outputs/seg_20261121_161753/last.pt", "outputs/seg_20261121_161753/a.csv", "log.txt")
MANY = ("outputs/seg_20261121_161810/last.pt", "outputs/seg_20261121_161810/a.csv", "log.txt")


def left(folder: Path, *paths: str) -> tuple[str, ...]:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return paths


def test_a_folder_of_another_second_gets_the_name_of_the_original(tmp_path: Path) -> None:
    names = same_names(tmp_path, ONE, left(tmp_path, *MANY))
    assert {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")} == set(ONE)
    assert in_text("in seg_20261121_161810/", names) == "in seg_20261121_161753/"
    printed = replace(reference(), stdout="seg_20261121_161810")
    assert "161753" in renamed(job([printed]), names).runs[0].stdout


def test_a_file_in_such_a_folder_has_its_own_time(tmp_path: Path) -> None:
    one = ("out/2026-11-21_10-00-00/events.1763740800.0",)
    same_names(tmp_path, one, left(tmp_path, "out/2026-11-21_10-00-09/events.1763740809.0"))
    assert (tmp_path / one[0]).exists()


def test_numbers_that_are_no_time_stay(tmp_path: Path) -> None:
    assert not same_names(tmp_path, ("epoch_4.png",), left(tmp_path, "epoch_5.png"))


def test_two_that_could_be_the_one_stay(tmp_path: Path) -> None:
    many = left(tmp_path, "run_20261121_161810/a", "run_20261121_161811/a")
    assert not same_names(tmp_path, ("run_20261121_161753/a",), many)
