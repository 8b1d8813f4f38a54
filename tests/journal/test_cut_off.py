"""A write that is killed at any of its operations: the next command leaves nothing half-done."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ddpify.journal.folder import WriteJournal
from ddpify.journal.restore import settled, undo
from ddpify.write import WriteError, apply, write_to
from tests.journal.conftest import CHANGES, looks
from tests.journal.kills import killed, killed_between_files, with_full_disk

Run = Callable[..., tuple[int, str, str]]
COMMAND = "ddpify migrate a.py --inplace"


def write(root: Path) -> None:
    apply(CHANGES, root, COMMAND)


def every(work: Callable[[Path], object], make: Callable[[], Path]) -> Iterator[tuple[int, Path]]:
    """Projects in which ``work`` was killed at each of its operations."""
    for survived in range(1000):
        root = make()
        cut_off = killed(partial(work, root), survived)
        yield survived, root
        if not cut_off:
            return
    pytest.fail("never done")


def test_the_next_command_finishes_or_takes_back(make: Callable[[], Path], ddpify: Run) -> None:
    untouched = looks(make())
    whole = make()
    write(whole)
    migrated = looks(whole)
    outcomes = []
    for survived, root in every(write, make):
        found = looks(root)
        code, _, said = ddpify("undo", "--list", root)
        assert code == 0
        now = looks(root)
        assert now in (untouched, migrated), survived
        home = root / ".ddpify"
        assert home.exists() is (now != untouched), "nothing lies about"
        assert not home.exists() or sorted(os.listdir(home)) == [".gitignore", "lock", "undo"]
        assert said.count("\n") <= 1
        assert said or found == now, "what is done is said"
        outcomes.append((found == now, said.partition(" was cut off")[2]))
    assert (False, "; all files are as they were before.\n") in outcomes
    assert (True, " when all its files were written: it is complete.\n") in outcomes
    assert ddpify("undo", whole)[0] == 0
    assert looks(whole) == untouched


def test_commands_that_read_the_project_say_so(make: Callable[[], Path], ddpify: Run) -> None:
    for command in ("migrate", "diff", "plan", "verify", "check", "undo"):
        root = make()
        killed_between_files(partial(write, root))
        assert (root / "a.py").read_bytes() == b"A\n"
        where = root / "a.py"
        said = ddpify(command, where)[2].splitlines()[0]
        assert said.startswith(f"ddpify: `{COMMAND}` (20")
        assert said.endswith(") was cut off; all files are as they were before.")
        assert (root / "a.py").read_bytes() == b"a\n"


def test_the_way_back_may_be_cut_off_too(make: Callable[[], Path]) -> None:
    untouched = looks(make())

    def half_written() -> Path:
        root = make()
        killed_between_files(partial(write, root))
        return root

    for survived, root in every(lambda here: settled(WriteJournal(here)), half_written):
        settled(WriteJournal(root))
        assert looks(root) == untouched, survived
        assert not (root / ".ddpify").exists()


def test_undo_may_be_cut_off(make: Callable[[], Path]) -> None:
    untouched = looks(make())

    def written() -> Path:
        root = make()
        write(root)
        return root

    def back(root: Path) -> object:
        return undo(WriteJournal(root), root / ".ddpify/undo/1")

    migrated = looks(written())
    for survived, root in every(back, written):
        settled(WriteJournal(root))
        assert looks(root) in (untouched, migrated), survived
        if (root / ".ddpify/undo/1").exists():
            back(root)
        assert looks(root) == untouched, survived
        assert not (root / ".ddpify").exists()


def test_a_copy_that_is_cut_off_goes(make: Callable[[], Path]) -> None:
    def copy(root: Path) -> None:
        write_to(CHANGES, root, root / "out", ["a.py"])

    untouched = looks(make())
    done = []
    for survived, root in every(copy, make):
        if (root / "out").exists():
            settled(WriteJournal(root / "out"))
            done.append((root / "out/a.py").exists())
            found = [path.name for path in (root / "out").rglob("*")]
            assert sorted(found) == (
                ["a.py", "b.py", "c.py", "deep", "new", "pkg", "pyproject.toml"] if done[-1] else []
            ), survived
            shutil.rmtree(root / "out")
        assert looks(root) == untouched
    assert sorted(set(done)) == [False, True]


def test_what_changed_meanwhile_stays(make: Callable[[], Path], ddpify: Run) -> None:
    root = make()
    killed_between_files(partial(write, root))
    (root / "a.py").write_text("mine\n")
    said = ddpify("check", root)[2]
    assert f"all is as before but what changed since: {root}/a.py ({root}/.ddpify/kept)" in said
    assert (root / "a.py").read_text() == "mine\n"
    assert (root / ".ddpify/kept/1/before/a.py").read_text() == "a\n"
    assert not (root / "new").exists()
    assert ddpify("check", root)[2] == ""


def test_a_full_disk_changes_nothing(make: Callable[[], Path]) -> None:
    untouched = looks(make())
    for survived in range(1000):
        root = make()

        def work(root: Path = root) -> int:
            try:
                write(root)
            except WriteError as error:
                return 2 if "(No space left on device" in str(error) else 3
            return 0

        code = with_full_disk(work, survived)
        assert code in (0, 2), survived
        if code == 0:
            return
        assert looks(root) == untouched, survived
        assert not (root / ".ddpify").exists(), survived
    pytest.fail("never done")


def test_a_second_writer_waits_and_is_refused(
    make: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make()
    monkeypatch.setattr("ddpify.journal.folder._PATIENCE", 0)
    with WriteJournal(root).locked():
        with pytest.raises(WriteError, match="another ddpify is writing there"):
            write(root)
        assert killed(partial(write, root), 1000)
    write(root)


def test_what_a_download_brings_is_not_believed(make: Callable[[], Path], ddpify: Run) -> None:
    """A journal may say of any file what it was; one that was copied is refused."""
    root, victim = make(), make()
    killed_between_files(partial(write, root))
    shutil.copytree(root / ".ddpify", victim / ".ddpify")
    before = looks(victim)
    code, _, said = ddpify("check", victim)
    assert code == 2
    assert said.endswith("was not made in this folder, but copied; move it away\n")
    assert looks(victim) == before
    (victim / ".ddpify/writing/journal.json").write_text(json.dumps({"schema": 1}))
    assert "cannot be read; move it away" in ddpify("diff", victim / "a.py")[2]


def test_a_journal_that_is_a_link_is_refused(make: Callable[[], Path], ddpify: Run) -> None:
    root, elsewhere = make(), make()
    (root / ".ddpify").symlink_to(elsewhere)
    before = looks(elsewhere)
    with pytest.raises(WriteError, match="is a link"):
        write(root)
    assert ddpify("check", root)[0] == 0
    assert looks(elsewhere) == before


def test_everything_is_on_the_disk_before_what_rests_on_it(
    make: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make()
    done: list[str] = []
    rename, replace = os.rename, os.replace

    def name(path: object) -> str:
        return os.path.basename(os.fspath(path))  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(
        os, "fsync", lambda fd: done.append(f"sync {name(os.readlink(f'/proc/self/fd/{fd}'))}")
    )
    monkeypatch.setattr(os, "rename", lambda a, b: (rename(a, b), done.append(f"to {name(b)}")))
    monkeypatch.setattr(os, "replace", lambda a, b: (replace(a, b), done.append(f"to {name(b)}")))
    write(root)
    opened, first = done.index("to writing"), done.index("to a.py")
    finished = done.index("to 1")
    before = done[:opened]
    assert {"sync a.py", "sync real.py", "sync journal.json", "sync preparing"} <= set(before)
    assert {"sync .ddpify", "sync project"} <= set(done[opened:first])
    assert sum(one.endswith(".ddpify-new") for one in done[opened:first]) == len(CHANGES)
    assert {"to a.py", "to c.py", "to real.py", "sync deep", "sync project"} <= set(
        done[first:finished]
    )
