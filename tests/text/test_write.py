"""All files or none: whatever fails on the way, the project is as it was."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpify import write
from ddpify.plan import Change
from ddpify.write import WriteError, apply, dirty_files, write_to


def change(path: str, before: str | None, after: str) -> Change:
    return Change(path, None if before is None else before.encode(), after.encode(), ())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "a.py").write_text("a\n")
    (root / "pkg" / "b.py").write_text("b\n")
    return root


def contents(root: Path) -> dict[str, str]:
    """Every file and folder below ``root``."""
    return {
        path.relative_to(root).as_posix(): path.read_text() if path.is_file() else "/"
        for path in root.rglob("*")
    }


BOTH = (
    change("a.py", "a\n", "A\n"),
    change("new/deep/c.py", None, "C\n"),
    change("pkg/b.py", "b\n", "B\n"),
)


def test_all_files_are_written(project: Path) -> None:
    apply(BOTH, project)
    assert contents(project) == {
        "a.py": "A\n",
        "new": "/",
        "new/deep": "/",
        "new/deep/c.py": "C\n",
        "pkg": "/",
        "pkg/b.py": "B\n",
    }


def test_no_changes_touch_nothing(project: Path) -> None:
    before = contents(project)
    apply([], project)
    assert contents(project) == before


def test_modes_are_kept_and_new_files_are_ordinary(project: Path) -> None:
    (project / "a.py").chmod(0o755)
    apply(BOTH, project)
    assert stat.S_IMODE((project / "a.py").stat().st_mode) == 0o755
    ordinary = project / "ordinary"
    ordinary.write_text("")
    assert (project / "new/deep/c.py").stat().st_mode == ordinary.stat().st_mode


def test_links_are_followed(project: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.py"
    real.write_text("a\n")
    (project / "a.py").unlink()
    (project / "a.py").symlink_to("../real.py")
    apply(BOTH, project)
    assert (project / "a.py").is_symlink()
    assert real.read_text() == "A\n"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["real.py"]


def test_two_names_of_one_file_cannot_differ(project: Path) -> None:
    (project / "z.py").symlink_to("a.py")
    before = contents(project)
    with pytest.raises(WriteError, match=r"z\.py: is the same file as a\.py"):
        apply([change("a.py", "a\n", "A\n"), change("z.py", "a\n", "Z\n")], project)
    assert contents(project) == before


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("survived", range(6))
@pytest.mark.parametrize("what", ["replace", "chmod"])
def test_a_failure_on_the_way_brings_everything_back(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    survived: int,
    what: str,
) -> None:
    before = contents(project)
    (project / "a.py").chmod(0o755)
    fail_after(monkeypatch, what, survived, error)
    failed = True
    try:
        apply(BOTH, project)
        failed = False
    except (WriteError, KeyboardInterrupt):
        pass
    monkeypatch.undo()
    assert failed == (survived < {"replace": 3, "chmod": 4}[what])
    assert not failed or contents(project) == before
    assert stat.S_IMODE((project / "a.py").stat().st_mode) == 0o755
    assert not [path for path in contents(project) if "ddpify" in path]


def fail_after(
    monkeypatch: pytest.MonkeyPatch, what: str, survived: int, error: BaseException
) -> None:
    """The call number ``survived`` of ``os.what`` fails, those after it do not."""
    real: Callable[..., object] = getattr(os, what)
    calls = []

    def limited(*args: object, **kwargs: object) -> object:
        calls.append(args)
        if len(calls) == survived + 1:
            raise error
        return real(*args, **kwargs)

    monkeypatch.setattr(os, what, limited)


def test_an_error_while_writing_names_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_after(monkeypatch, "replace", 2, OSError(28, "No space left on device"))
    with pytest.raises(WriteError) as caught:
        apply(BOTH, project)
    assert str(caught.value) == "pkg/b.py: cannot be written (No space left on device)"


def lock(path: Path) -> None:
    path.chmod(path.stat().st_mode & ~0o222)


UNWRITABLE = [
    pytest.param(lambda root: lock(root / "pkg/b.py"), r"pkg/b\.py: is read-only", id="file"),
    pytest.param(lambda root: lock(root / "pkg"), r"pkg/b\.py: its folder", id="folder"),
    pytest.param(lambda root: lock(root), r"a\.py: its folder", id="root"),
    pytest.param(lambda root: (root / "new").write_text(""), "is not a folder", id="not-a-folder"),
    pytest.param(
        lambda root: (root / "new/deep/c.py").mkdir(parents=True), "exists already", id="not-a-file"
    ),
    pytest.param(lambda root: (root / "a.py").write_text("other"), "has changed", id="changed"),
    pytest.param(lambda root: (root / "a.py").unlink(), "cannot be read", id="gone"),
]


@pytest.mark.parametrize(("spoil", "message"), UNWRITABLE)
def test_what_cannot_be_written_is_said_before_anything_is(
    project: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(project)
    before = contents(project)
    with pytest.raises(WriteError, match=message) as caught:
        apply(BOTH, project)
    assert "\n" not in str(caught.value)
    assert contents(project) == before


def test_a_copy_of_the_project(project: Path, tmp_path: Path) -> None:
    (project / "run.sh").write_text("run\n")
    (project / "run.sh").chmod(0o755)
    (project / "other.txt").write_text("whoever reads it")
    before = contents(project)
    out = tmp_path / "out" / "deep"
    write_to(BOTH, project, out, ["a.py", "pkg/b.py", "run.sh"])
    copy = {path: text for path, text in contents(out).items() if text != "/"}
    assert copy == {
        "a.py": "A\n",
        "pkg/b.py": "B\n",
        "new/deep/c.py": "C\n",
        "run.sh": "run\n",
        "other.txt": "whoever reads it",
    }
    assert (out / "run.sh").stat().st_mode == (project / "run.sh").stat().st_mode
    assert contents(project) == before


def test_a_copy_does_not_overwrite_other_content(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "pkg").mkdir(parents=True)
    (out / "a.py").write_text("A\n")
    (out / "pkg/b.py").write_text("mine\n")
    before = contents(out)
    with pytest.raises(WriteError, match=r"pkg/b\.py: exists with other content"):
        write_to(BOTH, project, out, ["a.py"])
    assert contents(out) == before
    write_to(BOTH, project, out, ["a.py"], force=True)
    assert (out / "pkg/b.py").read_text() == "B\n"


@pytest.mark.parametrize("path", ["a.py", "pkg"])
@pytest.mark.parametrize("force", [False, True])
def test_a_copy_is_not_written_through_a_link_that_leads_out_of_it(
    project: Path, tmp_path: Path, path: str, force: bool
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / path).symlink_to(project / path)
    before = contents(tmp_path)
    with pytest.raises(WriteError, match=rf"out/{path}.*: a link leads from there to .*; remove"):
        write_to(BOTH, project, out, ["a.py"], force=force)
    assert contents(tmp_path) == before
    (tmp_path / "inner").symlink_to(out)
    (out / path).unlink()
    write_to(BOTH, project, tmp_path / "inner", ["a.py"], force=force)
    assert (out / "a.py").read_text() == "A\n"


def test_a_copy_may_be_made_twice(project: Path, tmp_path: Path) -> None:
    for _ in range(2):
        write_to(BOTH, project, tmp_path / "out", ["a.py"])
    assert (tmp_path / "out/a.py").read_text() == "A\n"


def test_a_folder_where_a_file_should_be(project: Path, tmp_path: Path) -> None:
    (tmp_path / "out/a.py").mkdir(parents=True)
    with pytest.raises(WriteError, match=r"a\.py: is not a file"):
        write_to(BOTH, project, tmp_path / "out", ["a.py"], force=True)


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def test_dirty_files(project: Path) -> None:
    (project / "pkg" / "é b.py").write_text("b\n")
    (project / "ignored.py").write_text("")
    (project / ".gitignore").write_text("ignored.py\n")
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "x")
    assert dirty_files(["a.py", "pkg/b.py"], project) == ()
    (project / "a.py").write_text("other")
    (project / "pkg" / "é b.py").write_text("other")
    (project / "pkg" / "new.py").write_text("new")
    git(project, "mv", "pkg/b.py", "pkg/moved.py")
    files = ["a.py", "pkg/é b.py", "pkg/new.py", "pkg/moved.py", "ignored.py", "gone.py"]
    dirty = ("a.py", "pkg/moved.py", "pkg/new.py", "pkg/é b.py")
    assert dirty_files(files, project) == dirty
    assert dirty_files(["new.py", "a.py"], project / "pkg") == ("new.py",)


def test_without_a_repository_nothing_is_dirty(project: Path) -> None:
    assert dirty_files(["a.py"], project) == ()


def test_without_git_nothing_is_dirty(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(project, "init")
    assert dirty_files(["a.py"], project) == ("a.py",)
    monkeypatch.setenv("PATH", "")
    assert dirty_files(["a.py"], project) == ()


def test_the_writer_leaves_the_owner(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owners = []

    def refuse(path: Path, user: int, group: int, **_: object) -> None:
        owners.append((user, group))
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(write.os, "chown", refuse)
    was = (project / "a.py").stat()
    apply(BOTH[:1], project)
    assert owners == [(was.st_uid, was.st_gid)] * 2, "of the backup and of the new file"
    assert (project / "a.py").read_text() == "A\n"
