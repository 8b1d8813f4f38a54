"""`ddpify plan` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ddpify import cli
from tests.advice.programs import PARALLEL, TRAIN, changed
from tests.projects import put

NO_TORCH = """
import sys
for name in ("torch", "numpy", "jinja2", "rich", "psutil", "matplotlib"):
    sys.modules[name] = None
from ddpify.cli import main
sys.exit(main(sys.argv[1:]))
"""
RUN = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1,2,3 python train.py --batch-size 64\n"


def line(what: str) -> int:
    return PARALLEL[: PARALLEL.index(what)].count("\n") + 1


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put({"train.py": PARALLEL, "run.sh": RUN}, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_text_says_all_of_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    assert cli.main(["plan", "train.py"]) == cli.CLEAN
    said = capsys.readouterr().out
    for expected in (
        "Plan: train.py under torchrun (nothing is written)",
        "ddp_utils.py (new)",
        "DDP302      1  nn.DataParallel would spread each process over all GPUs",
        "run.sh:2: passes --batch-size 64; lists 4 GPUs",
        "run.sh:2       4     64         4x16           64            16",
        f"nn.DataParallel (train.py:{line('DataParallel')}) goes",
        f"S of SGD (train.py:{line('SGD')}) = 1 x T (momentum from --momentum (default 0.9,",
        "learning rate: as it is",
        "before: first GPU  before: others  after: every GPU",
        "kept for backward              A(b1)           A(b2)              A(b)",
    ):
        assert expected in said
    assert "  sum " not in said, "no bytes without a measurement"
    assert before == {path.name: path.read_bytes() for path in project.iterdir()}


def test_json_holds_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "train.py", "--format=json", "--nproc=2"]) == cli.CLEAN
    document = json.loads(capsys.readouterr().out)
    (entry,) = document["entries"]
    (row,) = entry["rows"]
    assert (row["ranks"], row["batch"], row["before"], row["after"]) == (2, 64, [32, 32], 32)
    assert entry["origins"][0]["site"] == "train.py:12"
    assert entry["memory_sums"] is None
    assert {change["path"] for change in document["changes"]} >= {"train.py", "run.sh"}
    assert all(change["reasons"] for change in document["changes"])


def test_markdown_has_tables(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "run.sh", "--format=markdown"]) == cli.CLEAN
    said = capsys.readouterr().out
    assert said.startswith("## ddpify plan: train.py under torchrun")
    assert "| run.sh:2 | 4 | 64 | 4x16 | 64 | 16 |" in said
    assert "|  | before: first GPU | before: others | after: every GPU |" in said


@pytest.mark.training
def test_a_measured_plan_has_bytes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "train.py", "--measure", "--format=json", "--", "--batch-size=16"]
    assert cli.main(arguments) == cli.CLEAN
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    (row,) = entry["rows"]
    assert (row["batch"], row["ranks"], row["steps_before"], row["steps_after"]) == (16, 4, 3, 3)
    parameters, inputs, saved, outputs, loss = 1300, 768, 1280, 320, 324  # see test_measure.py
    first = 4 * parameters + inputs + saved // 4 + outputs + loss
    after = 4 * parameters + (inputs + saved + outputs + loss) // 4
    assert entry["memory_sums"] == {"first": first, "others": 2 * parameters + 512, "after": after}
    assert entry["fits"][0]["ranks"] == 4
    assert entry["measured"]["command"] == "python train.py --batch-size=16"


def test_it_needs_the_base_installation_only(project: Path) -> None:
    command = [sys.executable, "-c", NO_TORCH, "plan", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([*command, "--measure"], capture_output=True, text=True, check=False)
    assert done.returncode == cli.FAILED
    assert done.stderr.startswith("ddpify: --measure needs ")
    assert done.stderr.endswith("pip install 'ddpify[verify]'\n")


def test_a_refusal_is_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = changed(TRAIN, ("loss.backward()", "pass"))
    (project / "train.py").write_text(text)
    assert cli.main(["plan", "train.py", "--measure"]) == cli.FAILED
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "no training loop found" in said.err
    assert said.out == ""


def test_a_folder_of_several_is_planned_but_not_measured(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "second.py").write_text(TRAIN)
    assert cli.main(["plan", "."]) == cli.CLEAN
    said = capsys.readouterr().out
    assert "Batch size of second.py:" in said
    assert "Batch size of train.py:" in said
    assert cli.main(["plan", ".", "--measure"]) == cli.FAILED
    assert "--measure needs one script" in capsys.readouterr().err
