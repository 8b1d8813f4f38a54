"""The original as a git revision or a folder has it, with the data git does not know."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ddpify.verify import scratch
from ddpify.verify.baseline import export
from ddpify.verify.snapshot import ScratchError
from tests.projects import put


def git(folder: Path, *arguments: str) -> str:
    """With none of the user's settings."""
    name = {"GIT_AUTHOR_NAME": "a", "GIT_COMMITTER_NAME": "a"}
    mail = {"GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_EMAIL": "a@b"}
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-C", str(folder), *arguments],
        env={**os.environ, **name, **mail, "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(folder: Path, tag: str) -> str:
    git(folder, "add", "--all", ".")
    git(folder, "commit", "--message", tag)
    git(folder, "tag", tag)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two revisions: ``old.py`` is only in the first, ``new.py`` only in the second."""
    root = put({"main.py": "one", "old.py": "", ".gitignore": "data\n"}, tmp_path / "project")
    git(root, "init")
    commit(root, "v1")
    (root / "old.py").unlink()
    put({"main.py": "two", "new.py": ""}, root)
    commit(root, "v2")
    return root


def test_tracked_files_are_those_of_the_revision(project: Path, tmp_path: Path) -> None:
    put({"main.py": "three"}, project)

    copy, _ = export(project, "v1", tmp_path / "scratch")

    assert copy == tmp_path / "scratch" / "project"
    assert (copy / "main.py").read_text() == "one"
    assert (copy / "old.py").exists()
    assert not (copy / "new.py").exists()


def test_the_working_tree_and_its_index_stay_as_they_are(project: Path, tmp_path: Path) -> None:
    put({"main.py": "three", "staged.py": ""}, project)
    git(project, "add", "staged.py")
    before = git(project, "status", "--porcelain")

    export(project, "v1", tmp_path / "scratch")

    assert git(project, "status", "--porcelain") == before
    assert (project / "main.py").read_text() == "three"


def test_what_git_does_not_know_comes_along(project: Path, tmp_path: Path) -> None:
    put({"data/train.csv": "1", "notes.txt": "untracked"}, project)
    (project / "data" / "weights.bin").write_bytes(b"x" * (scratch.SMALL + 1))

    copy, _ = export(project, "v1", tmp_path / "scratch")

    assert (copy / "data" / "train.csv").read_text() == "1"
    assert (copy / "data" / "weights.bin").is_symlink()
    assert (copy / "notes.txt").exists()


def test_a_folder_of_data_with_a_tracked_file_has_the_revisions(
    project: Path, tmp_path: Path
) -> None:
    """One link to the folder would bring the working tree's file with it."""
    put({".gitignore": "*.png\n", "images/list.txt": "of v3"}, project)
    commit(project, "v3")
    for number in range(scratch.MANY + 1):
        (project / "images" / f"{number}.png").touch()

    copy, _ = export(project, "v1", tmp_path / "scratch")

    assert not (copy / "images" / "list.txt").exists()
    assert (copy / "images" / "0.png").is_symlink()


def test_a_file_that_was_tracked_then_is_the_revisions(project: Path, tmp_path: Path) -> None:
    put({"old.py": "untracked now"}, project)

    copy, _ = export(project, "v1", tmp_path / "scratch")

    assert (copy / "old.py").read_text() == ""


def test_no_folder_is_left_of_files_the_revision_lacks(project: Path, tmp_path: Path) -> None:
    put({"package/__init__.py": ""}, project)
    commit(project, "v3")

    copy, _ = export(project, "v1", tmp_path / "scratch")

    assert not (copy / "package").exists()


def test_files_marked_export_ignore_are_there(project: Path, tmp_path: Path) -> None:
    put({".gitattributes": "main.py export-ignore\n"}, project)
    commit(project, "v3")

    copy, _ = export(project, "v3", tmp_path / "scratch")

    assert (copy / "main.py").exists()


def test_a_project_in_a_folder_of_the_repository(project: Path, tmp_path: Path) -> None:
    put({"examples/digits/train.py": "one"}, project)
    commit(project, "v3")
    put({"examples/digits/train.py": "two"}, project)

    copy, _ = export(project / "examples" / "digits", "v3", tmp_path / "scratch")

    assert copy == tmp_path / "scratch" / "digits"
    assert [path.name for path in copy.iterdir()] == ["train.py"]
    assert (copy / "train.py").read_text() == "one"


def test_a_revision_without_the_project_is_refused(project: Path, tmp_path: Path) -> None:
    (project / "examples").mkdir()

    with pytest.raises(ScratchError, match=r"examples: git revision v1 has no files of it$"):
        export(project / "examples", "v1", tmp_path / "scratch")


def test_the_description_names_what_was_typed(project: Path, tmp_path: Path) -> None:
    sha = git(project, "rev-parse", "v1")

    assert export(project, "v1", tmp_path / "a")[1] == f"git revision {sha[:7]} (v1)"
    assert export(project, sha[:9], tmp_path / "b")[1] == f"git revision {sha[:7]}"


def test_a_folder(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put({"main.py": "before"}, tmp_path / "original")
    monkeypatch.chdir(project)

    copy, description = export(project, "../original", tmp_path / "scratch")

    assert (copy / "main.py").read_text() == "before"
    assert description == "folder ../original"


@pytest.mark.parametrize("revision", ["v9", "--all", "v1:main.py"])
def test_an_unknown_revision_is_refused(project: Path, tmp_path: Path, revision: str) -> None:
    with pytest.raises(ScratchError, match=rf"^{revision}: is n(either|ot) a [^\n]*$"):
        export(project, revision, tmp_path / "scratch")


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    root = put({"main.py": ""}, tmp_path / "project")

    with pytest.raises(ScratchError, match=r"project: not a git repository[^\n]*$"):
        export(root, "v1", tmp_path / "scratch")


def test_git_missing_is_said(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ScratchError, match=r"^git: is not installed"):
        export(project, "v1", tmp_path / "scratch")
