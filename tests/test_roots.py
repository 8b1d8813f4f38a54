"""Where a project begins: by what marks its top, also in an archive, which has no `.git`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.checking.files import root_of
from ddpify.roots import project_root

# What lies in the three folders, from the outermost, and which of them is the top.
PLACES = [
    ((".git", "", ""), 0),
    (("setup.py", "requirements.txt", ""), 1),
    (("LICENSE", "", ""), 0),
    (("", "LICENSE.txt", ""), 1),
    ((".git", "LICENSE", ""), 0),  # of a part that somebody else wrote
    (("", "", ""), 2),
]


@pytest.mark.parametrize(("marks", "top"), PLACES)
def test_a_project_begins_where_its_marks_say(
    marks: tuple[str, str, str], top: int, tmp_path: Path
) -> None:
    folders = [tmp_path / "outer", tmp_path / "outer" / "train", tmp_path / "outer/train/net"]
    folders[-1].mkdir(parents=True)
    for folder, mark in zip(folders, marks, strict=True):
        if mark:
            (folder / mark).touch()
    script = folders[-1] / "main.py"
    script.touch()
    assert project_root(script) == folders[top]


def test_check_takes_the_top_of_an_archive_too(tmp_path: Path) -> None:
    script = tmp_path / "train" / "main.py"
    script.parent.mkdir()
    script.touch()
    (tmp_path / "LICENSE").touch()
    assert root_of(script) == project_root(script) == tmp_path
