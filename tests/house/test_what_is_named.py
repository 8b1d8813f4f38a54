"""Sentences name what the project has, or how to get it; places are those of the current folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddpify import cli
from ddpify.outcome import Outcome, Refusal
from ddpify.rules.registry import all_rules
from ddpify.seal import is_sealed
from ddpify.sourcing import sourced
from tests.projects import put_fixture

MISSING = "ddp_utils.py is missing: the program ends"


def put_example(rule: str, number: int, root: Path) -> None:
    """The wrong program number so many of a rule."""
    bad = next(one for one in all_rules() if one.id == rule).bad[number]
    root.mkdir()
    (root / "pyproject.toml").write_text("")
    for name, text in bad.files:
        (root / name).write_text(text)


def test_a_refusal_says_where_its_helper_is_and_what_place_it_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_example("DDP406", 3, tmp_path / "net")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["diff", "net/main.py"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ddpify: net/main.py:15: DDP406 the model keeps this of a batch")
    assert said.endswith(
        "whole_batch(rows); `--accept DDP406@net/main.py:15` migrates it as it"
        " stands; helpers: `from ddpify.runtime import whole_batch`\n"
    )
    assert cli.main(["plan", "net/main.py"]) == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(
            "call sync_buffers(m), then reduce_sum(x)",
            "call sync_buffers(m), then reduce_sum(x); helpers: `from core.ddp_utils import"
            " sync_buffers`, `from core.ddp_metrics import reduce_sum` (`ddpify migrate` then"
            " copies what is not there yet)",
            id="helpers",
        ),
        pytest.param(
            "call torch.distributed.barrier()", "call torch.distributed.barrier()", id="torch"
        ),
    ],
)
def test_a_project_with_a_copy_imports_from_it(tmp_path: Path, text: str, shown: str) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "ddp_utils.py").write_text("")
    found = Outcome(tmp_path, (), refusals=(Refusal(text),))
    told = sourced(found, ("core.ddp_utils", "core/ddp_utils.py"))
    assert told.refusals == (Refusal(shown),)


def test_a_plan_names_places_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_fixture("vae", tmp_path / "vae")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", "vae/main.py"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Plan: vae/main.py under torchrun")
    assert "  vae/main.py " in shown
    assert " main.py:" not in shown


def test_missing_helpers_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody committed all but the new file; and formatting it changes nothing."""
    entry = put_fixture("vae", tmp_path / "vae")
    (entry.parent / "pyproject.toml").write_text("[tool.black]\n")
    monkeypatch.chdir(entry.parent)
    assert cli.main(["migrate", "main.py", "--inplace", "--force"]) == 0
    core = entry.parent / "ddp_utils.py"
    written = core.read_text()
    black = [sys.executable, "-m", "black", "-q"]
    assert subprocess.run([*black, "--check", core], check=False).returncode == 0
    subprocess.run([*black, "-l", "40", core], check=True)
    assert core.read_text() != written
    assert is_sealed(core.read_text())
    capsys.readouterr()
    assert cli.main(["diff", "main.py"]) == 0
    assert "Nothing to change in main.py.\n" in capsys.readouterr().err

    core.unlink()
    assert cli.main(["check", "--no-cache"]) == 1
    said = capsys.readouterr().out
    assert f"error DDP004 {MISSING} here\n    `ddpify migrate` writes it again\n" in said
    assert cli.main(["migrate", "main.py", "--inplace", "--force"]) == 0
    assert MISSING in capsys.readouterr().out
    assert core.read_text() == written


def test_a_folder_of_several_projects_lists_their_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        put_fixture("vae", tmp_path / name)
        (tmp_path / name / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["diff", "."]) == 2
    said = "ddpify: .: holds several projects; name one script: one/main.py, two/main.py\n"
    assert capsys.readouterr().err == said
