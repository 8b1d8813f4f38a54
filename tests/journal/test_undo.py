"""`ddpify undo`: exactly what was, in the order of what was written, or nothing at all."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpify.journal.earlier import put_back
from ddpify.plan import Change
from ddpify.write import apply
from tests.journal.conftest import CHANGES, looks
from tests.projects import put_fixture

Run = Callable[..., tuple[int, str, str]]
COMMAND = "ddpify migrate a.py --inplace"
TRAIN = "main_classification.py"


def test_a_migration_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ddpify: Run
) -> None:
    """Outside git: the backup is named, and the way back works from where the user stands."""
    project = put_fixture("classification", tmp_path / "digits").parent
    before = looks(project)
    monkeypatch.chdir(tmp_path)
    code, said, _ = ddpify("migrate", project / TRAIN, "--inplace")
    assert code == 0
    name = project.name
    assert f"\nThe files as they were before are in {name}/.ddpify/undo/1/before.\n" in said
    assert said.endswith(f"\nTake it back: ddpify undo {name}\n")
    kept = (project / ".ddpify/undo/1/before" / TRAIN).read_bytes()
    assert kept == before[f"{name}/{TRAIN}"][1]  # type: ignore[index]
    assert ddpify("check", project)[1].startswith("No findings"), "the journal is not read"
    code, said, _ = ddpify("undo", name)
    assert code == 0
    assert said.startswith(f"Took back `ddpify migrate {project / TRAIN} --inplace` (20")
    assert f"  {name}/{TRAIN}: as it was\n" in said
    assert f"  {name}/ddp_utils.py: removed\n" in said
    assert looks(project) == before
    assert not (project / ".ddpify").exists()
    assert ddpify("undo", name) == (0, "Nothing to undo.\n", "")


def test_in_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ddpify: Run) -> None:
    """Git has what was before, and sees nothing of the journal."""
    project = put_fixture("classification", tmp_path / "digits").parent
    monkeypatch.chdir(project)
    for words in ("init", "add .", "-c user.name=x -c user.email=x@y commit -m x"):
        subprocess.run(["git", *words.split()], check=True, capture_output=True)
    code, said, _ = ddpify("migrate", TRAIN, "--inplace")
    assert (code, said[-27:]) == (0, "\nTake it back: ddpify undo\n")
    assert "as they were before" not in said
    status = ["git", "status", "--porcelain", "-uall"]
    assert b".ddpify/" not in subprocess.run(status, check=True, capture_output=True).stdout
    assert ddpify("undo")[0] == 0
    assert subprocess.run(status, check=True, capture_output=True).stdout == b""
    (project / TRAIN).write_text((project / TRAIN).read_text() + "\n")
    assert ddpify("migrate", TRAIN, "--inplace")[0] == 2
    said = ddpify("migrate", TRAIN, "--inplace", "--force")[1]
    assert "as they were before are in .ddpify/undo/1/before" in said, "git has not this one"


def test_modes_times_and_links_are_back(make: Callable[[], Path], ddpify: Run) -> None:
    root = make()
    before, then = looks(root), (root / "a.py").stat().st_mtime_ns
    apply(CHANGES, root, COMMAND)
    assert (root / "a.py").read_bytes() == b"A\n"
    ddpify("undo", root / "pkg")
    assert looks(root) == before
    assert (root / "a.py").stat().st_mtime_ns == then


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        pytest.param(lambda root: (root / "a.py").write_text("mine"), "a.py", id="changed"),
        pytest.param(lambda root: (root / "a.py").unlink(), "a.py", id="gone"),
        pytest.param(lambda r: (r / "new/deep/c.py").write_text(""), "new/deep/c.py", id="new"),
        pytest.param(
            lambda r: (r.parent / "real.py").write_text(""), "real.py", id="behind-a-link"
        ),
        pytest.param(lambda root: (root / "a.py").chmod(0o444), "a.py", id="read-only"),
        pytest.param(
            lambda r: (r / ".ddpify/undo/1/before/a.py").unlink(), "before/a.py", id="no-backup"
        ),
    ],
)
def test_where_a_file_changed_nothing_is_touched(
    make: Callable[[], Path], ddpify: Run, spoil: Callable[[Path], object], names: str
) -> None:
    root = make()
    apply(CHANGES, root, COMMAND)
    spoil(root)
    before = looks(root)
    code, out, said = ddpify("undo", root)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert f"{names}: " in said
    assert looks(root) == before
    assert len(list((root / ".ddpify/undo").iterdir())) == 1, "another try is possible"


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('"path": "a.py"', '"path": 5'),
        ('"path": "a.py"', '"path": "a\\u0000.py"'),
        ('"time": "', '"time": "yesterday, '),
        (f'"command": "{COMMAND}"', '"command": null'),
        ('"backup": "before/a.py"', '"backup": null'),
    ],
)
def test_a_record_with_other_values_is_not_read(
    make: Callable[[], Path], ddpify: Run, written: str, instead: str
) -> None:
    root = make()
    apply(CHANGES, root, COMMAND)
    record = root / ".ddpify/undo/1/journal.json"
    text = record.read_text()
    assert written in text
    record.write_text(text.replace(written, instead))
    before = looks(root)
    for arguments in ((), ("--list",)):
        code, out, said = ddpify("undo", root, *arguments)
        assert (code, out) == (2, "")
        assert said == f"ddpify: {record.parent}: cannot be read; move it away\n"
    assert looks(root) == before


def test_one_after_the_other(
    make: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, ddpify: Run
) -> None:
    root = make()
    monkeypatch.chdir(root)
    apply(CHANGES, root, COMMAND)
    apply([Change("a.py", b"A\n", b"fixed\n", ())], root, "ddpify check --fix")
    rows = ddpify("undo", "--list")[1].splitlines()
    assert [row[18:].split("  (")[0] for row in rows] == ["ddpify check --fix", COMMAND]
    assert rows[1].endswith("  (3 files; backup: .ddpify/undo/1)")
    assert ddpify("undo")[1].startswith("Took back `ddpify check --fix` (")
    assert (root / "a.py").read_bytes() == b"A\n"
    assert ddpify("undo")[1].startswith(f"Took back `{COMMAND}` (")
    assert (root / "a.py").read_bytes() == b"a\n"
    assert ddpify("undo", "--list")[1] == "Nothing to undo.\n"


def test_another_project_is_left_alone(make: Callable[[], Path], ddpify: Run) -> None:
    """Also one around this one, if nothing of this one was written."""
    root = make()
    apply(CHANGES, root, COMMAND)
    (root / "other").mkdir()
    (root / "other/setup.py").write_text("")
    assert ddpify("undo", root / "other")[1] == "Nothing to undo.\n"
    assert ddpify("undo", root / "new")[1].startswith("Took back")


def test_of_many_the_last_ten_are_kept(make: Callable[[], Path]) -> None:
    root = make()
    for number in range(12):
        before = (root / "a.py").read_bytes()
        apply([Change("a.py", before, b"%d\n" % number, ())], root, COMMAND)
    kept = sorted(int(one.name) for one in (root / ".ddpify/undo").iterdir())
    assert kept == list(range(3, 13))


def test_what_git_took_back_is_no_obstacle(make: Callable[[], Path], ddpify: Run) -> None:
    root = make()
    before = looks(root)
    apply(CHANGES, root, COMMAND)
    (root / "a.py").write_text("a\n")
    (root / "new/deep/c.py").unlink()
    said = ddpify("undo", root)[1]
    assert "a.py" not in said.split(":", 1)[1]
    assert f"{root.parent / 'real.py'}: as it was" in said
    assert looks(root) == before


def test_no_such_place(tmp_path: Path, ddpify: Run) -> None:
    said = ddpify("undo", tmp_path / "nowhere")
    assert said == (2, "", f"ddpify: {tmp_path}/nowhere: no such file or folder\n")
    assert ddpify("undo", tmp_path) == (0, "Nothing to undo.\n", "")


def test_where_a_link_leads_elsewhere_no_earlier_project_is_made(
    make: Callable[[], Path], tmp_path: Path
) -> None:
    root, plain = make(), make()
    apply(CHANGES, root, "ddpify migrate a.py --inplace")
    assert put_back(root, tmp_path / "nowhere") == ""
    apply(CHANGES[:2], plain, "ddpify migrate a.py --inplace")
    copied = shutil.copytree(plain, tmp_path / "copy", symlinks=True)
    assert put_back(plain, copied) == "ddpify migrate a.py --inplace"
    assert (copied / "a.py").read_text() == "a\n"
    assert not (copied / "new/deep/c.py").exists()
