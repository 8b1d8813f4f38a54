"""`ddpify check` from the command line, on a project before and after its migration."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import cli
from ddpify.names import HEADER_PREFIX
from ddpify.seal import seal
from tests.projects import put_fixture


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return put_fixture("classification", tmp_path / "project")


READ = "No findings: 1 program read as several ranks run it.\n"


@pytest.fixture
def migrated(entry: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert cli.main(["migrate", str(entry), "--inplace"]) == cli.CLEAN
    capsys.readouterr()
    return entry


def test_one_process_has_no_findings_and_is_told_why(
    entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(entry)]) == cli.CLEAN
    said = capsys.readouterr().out
    assert said.startswith("No findings: nothing here trains with several processes")
    assert "`ddpify diff` shows what it would take" in said


def test_a_migrated_project_is_clean(migrated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(migrated)]) == cli.CLEAN
    assert capsys.readouterr().out == READ


def test_a_line_taken_back_is_found_where_it_belongs(
    migrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = migrated.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "begin_epoch(train_loader" not in line]
    migrated.write_text("".join(kept))
    loop = next(n for n, line in enumerate(kept, 1) if line.startswith("    for epoch in"))
    assert cli.main(["check", str(migrated)]) == cli.TO_DO
    assert f"main_classification.py:{loop}:5: error DDP201 " in capsys.readouterr().out


def test_a_changed_copy_of_the_helpers_is_named(
    migrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = migrated.with_name("ddp_utils.py")
    copy.write_text(copy.read_text() + "\nMINE = 1\n")
    assert cli.main(["check", str(migrated)]) == cli.CLEAN  # a note: for a person to settle
    assert (
        "ddp_utils.py:1:1: note DDP001 the copy of the helpers was changed"
        in capsys.readouterr().out
    )


def test_a_batch_size_kept_per_rank_is_not_split_and_said_so(
    entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--batch-size", "per-rank", "--runtime", "import"]
    assert cli.main(["diff", str(entry), *flags]) == cli.TO_DO
    said = capsys.readouterr()
    assert "per_rank_batch_size" not in said.out
    assert "the global batch is N times as large" in said.err


def without(script: Path, call: str) -> str:
    """Take the lines with this call out, and its name where it is imported; the text before."""
    text = script.read_text()
    imported = text.replace(f"import {call}, ", "import ", 1)
    script.write_text("".join(one for one in imported.splitlines(keepends=True) if call not in one))
    return text


def test_fix_puts_back_what_was_taken(migrated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = without(migrated, "begin_epoch(train_loader")
    assert cli.main(["check", str(migrated), "--fix"]) == cli.CLEAN
    assert migrated.read_text() == before
    assert capsys.readouterr().out == f"Fixed 1 finding.\n{READ}"


def test_fix_renews_a_copy_that_lacks_the_helper(
    migrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one of an older version does: the fix would import what is not there."""
    copy = migrated.with_name("ddp_utils.py")
    newest = copy.read_text()
    body = newest.partition("\n")[2].replace("def begin_epoch(", "def _begin_epoch(")
    copy.write_text(f"{HEADER_PREFIX}0.0.1 {seal(body)}\n{body}")
    before = without(migrated, "begin_epoch")
    assert cli.main(["check", str(migrated.parent), "--fix", "--select", "DDP2"]) == cli.CLEAN
    assert copy.read_text() == newest
    assert sorted(migrated.read_text().split()) == sorted(before.split())


def test_a_copy_changed_by_hand_is_not_renewed(
    migrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = migrated.with_name("ddp_utils.py")
    copy.write_text(copy.read_text().replace("def begin_epoch(", "def mine("))
    without(migrated, "begin_epoch")
    changed = migrated.read_text()
    assert cli.main(["check", str(migrated), "--fix", "--select", "DDP201"]) == cli.TO_DO
    assert migrated.read_text() == changed
    assert "it was changed by hand" in capsys.readouterr().out


def test_a_folder_is_checked_with_its_launchers(
    migrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (migrated.parent / "old.sh").write_text("python main_classification.py --epochs 3\n")
    assert cli.main(["check", str(migrated.parent)]) == cli.TO_DO
    assert "old.sh:1:1: warning DDP002 [*] " in capsys.readouterr().out


def test_a_function_of_the_same_name_is_no_helper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "utils.py").write_text("def setup_distributed():\n    pass\n")
    program = "from utils import setup_distributed\n\nsetup_distributed()\n"
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "train.sh").write_text("srun python train.py\n")
    assert cli.main(["check", str(tmp_path)]) == cli.CLEAN
    assert "DDP002" not in capsys.readouterr().out


def test_a_second_check_says_the_same(migrated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without(migrated, "begin_epoch(train_loader")
    assert cli.main(["check", str(migrated)]) == cli.TO_DO
    said = capsys.readouterr()
    assert cli.main(["check", str(migrated)]) == cli.TO_DO
    assert capsys.readouterr() == said
