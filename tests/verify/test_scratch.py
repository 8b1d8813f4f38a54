"""A scratch copy runs as the project does, costs little, and keeps the user's files as they are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ddpify.verify import scratch
from ddpify.verify.scratch import copy_project
from ddpify.verify.snapshot import ScratchError, left_behind, restore, snapshot
from tests.projects import put


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project among others, as in a user's folder of projects."""
    (tmp_path / "work" / "data").mkdir(parents=True)
    (tmp_path / "work" / "data" / "train.csv").write_text("1,2\n")
    return put({"main.py": "print('hello')\n", "src/net.py": "\n"}, tmp_path / "work" / "project")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_the_copy_has_the_name_and_the_files_of_the_project(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "scratch")

    assert copy == tmp_path / "scratch" / "project"
    assert tree(copy) == ["main.py", "requirements.txt", "src", "src/net.py"]
    assert not any(path.is_symlink() for path in copy.rglob("*"))


def test_writing_into_the_copy_leaves_the_project_alone(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "scratch")

    (copy / "main.py").write_text("changed")
    (copy / "src" / "new.txt").write_text("new")

    assert (project / "main.py").read_text() == "print('hello')\n"
    assert not (project / "src" / "new.txt").exists()


@pytest.mark.parametrize(
    "path",
    [
        ".git/HEAD",
        "env/pyvenv.cfg",
        "conda/conda-meta/history",
        "web/node_modules/a.js",
        "src/__pycache__/net.pyc",
        ".mypy_cache/x",
    ],
)
def test_what_no_program_reads_is_left_out(project: Path, tmp_path: Path, path: str) -> None:
    put({path: ""}, project)

    copy = copy_project(project, tmp_path / "scratch")

    assert not (copy / path).exists()


def test_a_large_file_is_a_link_and_a_small_one_a_copy(project: Path, tmp_path: Path) -> None:
    (project / "weights.pt").write_bytes(b"x" * (scratch.SMALL + 1))
    (project / "small.pt").write_bytes(b"x" * scratch.SMALL)

    copy = copy_project(project, tmp_path / "scratch")

    assert (copy / "weights.pt").readlink() == project / "weights.pt"
    assert not (copy / "small.pt").is_symlink()


def fill(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number}.png").touch()


def test_a_folder_of_many_files_without_code_is_one_link(project: Path, tmp_path: Path) -> None:
    fill(project / "images" / "cats", scratch.MANY // 2 + 1)
    fill(project / "images" / "dogs", scratch.MANY // 2)
    fill(project / "few", 10)

    copy = copy_project(project, tmp_path / "scratch")

    assert (copy / "images").readlink() == project / "images"
    assert not (copy / "few").is_symlink()


def test_a_folder_of_many_files_with_code_is_a_folder(project: Path, tmp_path: Path) -> None:
    fill(project / "images" / "cats", scratch.MANY + 1)
    put({"images/prepare.py": ""}, project)

    copy = copy_project(project, tmp_path / "scratch")

    assert not (copy / "images").is_symlink()
    assert (copy / "images" / "cats").is_symlink()


def test_links_lead_where_they_led(project: Path, tmp_path: Path) -> None:
    (project / "latest.py").symlink_to("main.py")
    (project / "src" / "up.py").symlink_to(project / "main.py")
    (project / "train.csv").symlink_to("../data/train.csv")
    (project / "gone").symlink_to("nowhere")

    copy = copy_project(project, tmp_path / "scratch")

    assert os.readlink(copy / "latest.py") == "main.py"
    assert (copy / "src" / "up.py").resolve() == copy / "main.py"
    assert (copy / "train.csv").resolve() == project.parent / "data" / "train.csv"
    assert os.readlink(copy / "gone") == "nowhere"


def test_the_neighbours_are_beside_the_copy(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "scratch")

    assert (copy / ".." / "data" / "train.csv").read_text() == "1,2\n"


def test_a_shared_folder_has_no_neighbours(project: Path, tmp_path: Path) -> None:
    project.parent.chmod(0o1777)

    copy = copy_project(project, tmp_path / "scratch")

    assert not (copy.parent / "data").exists()


def test_a_copy_inside_the_project_does_not_hold_itself(project: Path) -> None:
    copy = copy_project(project, project / "tmp" / "scratch")

    assert not (copy / "tmp" / "scratch").exists()
    assert (copy / "main.py").exists()


def test_what_the_file_system_refuses_is_one_sentence(project: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("in the way")

    with pytest.raises(ScratchError, match=r"^/.*scratch.*: cannot be copied: [A-Z].*[a-z]$"):
        copy_project(project, tmp_path / "scratch")


def test_what_a_run_leaves_behind(project: Path, tmp_path: Path) -> None:
    copy = copy_project(project, tmp_path / "scratch")
    before = snapshot(copy)

    for path in ("out/model.pt", "main.py", "src/__pycache__/net.pyc"):
        write(copy / path, "changed")
    (copy / "temporary").touch()
    (copy / "temporary").unlink()

    assert left_behind(copy, before) == ("main.py", "out/model.pt")


def test_a_link_replaced_by_the_same_file_is_not_left_behind(project: Path, tmp_path: Path) -> None:
    (project / "weights.pt").write_bytes(b"x" * (scratch.SMALL + 1))
    fill(project / "images", scratch.MANY + 1)
    copy = copy_project(project, tmp_path / "scratch")
    before = snapshot(copy)

    # as the observer does before the program writes
    (copy / "weights.pt").unlink()
    shutil.copy2(project / "weights.pt", copy / "weights.pt")
    (copy / "images").unlink()
    (copy / "images").mkdir()
    (copy / "images" / "0.png").symlink_to(project / "images" / "0.png")
    (copy / "images" / "new.txt").write_text("new")

    assert left_behind(copy, before) == ("images/new.txt",)


def test_restoring_undoes_everything(project: Path, tmp_path: Path) -> None:
    (project / "weights.pt").write_bytes(b"x" * (scratch.SMALL + 1))
    (project / "runs").mkdir()
    copy = copy_project(project, tmp_path / "scratch")
    before = snapshot(copy, tmp_path / "store")
    paths = tree(copy)

    (copy / "weights.pt").unlink()
    for path in ("out/model.pt", "main.py", "runs/1/log", "weights.pt"):
        write(copy / path, "changed")
    (copy / "src" / "net.py").unlink()
    (copy / "src").rmdir()
    (copy / "src").write_text("a file now")
    restore(copy, before)

    assert tree(copy) == paths
    assert left_behind(copy, before) == ()
    assert (copy / "main.py").read_text() == "print('hello')\n"
    assert (copy / "weights.pt").is_symlink()
