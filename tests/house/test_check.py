"""`ddpify check` from the command line, on a project before and after its migration."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import cli
from tests.projects import put_fixture


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return put_fixture("classification", tmp_path / "project")


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
    assert "one process: nothing to check" in said
    assert said.endswith("No findings.\n")


def test_a_migrated_project_is_clean(migrated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(migrated)]) == cli.CLEAN
    assert capsys.readouterr().out == "No findings.\n"


def test_a_line_taken_back_is_found_where_it_belongs(
    migrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = migrated.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "set_epoch(train_loader" not in line]
    migrated.write_text("".join(kept))
    loop = next(n for n, line in enumerate(kept, 1) if line.startswith("    for epoch in"))
    assert cli.main(["check", str(migrated)]) == cli.TO_DO
    assert f"main_classification.py:{loop}:5: DDP201 " in capsys.readouterr().out


def test_a_changed_copy_of_the_helpers_is_named(
    migrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = migrated.with_name("ddp_utils.py")
    copy.write_text(copy.read_text() + "\n# mine\n")
    assert cli.main(["check", str(migrated)]) == cli.CLEAN  # a note: for a person to settle
    assert "ddp_utils.py:1:1: DDP001 the copy of the helpers was changed" in capsys.readouterr().out


def test_a_batch_size_kept_per_rank_is_not_split_and_said_so(
    entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--batch-size", "per-rank", "--runtime", "import"]
    assert cli.main(["diff", str(entry), *flags]) == cli.TO_DO
    said = capsys.readouterr()
    assert "per_rank_batch_size" not in said.out
    assert "the global batch is N times as large" in said.err
