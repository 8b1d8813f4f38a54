"""`ddpify verify` as a user meets it: exit codes, one line for what cannot be, files left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from ddpify import cli
from ddpify.settings import Settings
from ddpify.verify.options import Options
from ddpify.verify.pairing import pair
from tests.verify.hazards.base import CORRECT, ORIGINAL, changed, put

pytestmark = pytest.mark.training
WRONG = changed(CORRECT, ("loss.backward()", "(loss / 3).backward()"))


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_single_process_script_is_compared_with_its_migrated_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    script = put(ORIGINAL, tmp_path / "project")
    reports = [f"--{kind}={tmp_path / kind}" for kind in ("json", "html", "markdown")]
    assert cli.main(["verify", str(script), *reports, "--", "--epochs=1"]) == cli.CLEAN
    said = capsys.readouterr()
    assert "2 processes train the same model" in said.out
    assert "torchrun --standalone --nproc_per_node=2 train.py --epochs=1" in said.out
    assert "running the original" in said.err
    assert sorted(p.name for p in script.parent.iterdir()) == ["requirements.txt", "train.py"]
    assert script.read_text() == ORIGINAL
    assert not list((tmp_path / "scratch").iterdir()), "the copies are gone"
    assert json.loads((tmp_path / "json").read_text())["passed"] is True
    assert (tmp_path / "html").read_text().startswith("<!DOCTYPE html>")
    assert "| " in (tmp_path / "markdown").read_text()


def test_a_wrong_program_fails_against_the_last_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put(ORIGINAL, tmp_path / "project")
    for command in (["init"], ["add", "."], ["commit", "-m", "original"]):
        git(script.parent, *command)
    script.write_text(WRONG)
    assert cli.main(["verify", str(script), "--steps=3", "--keep"]) == cli.TO_DO
    said = capsys.readouterr().out
    assert "git revision" in said
    assert "train the same model" not in said
    kept = next(word for word in said.split() if "ddpify-verify-" in word)
    assert list(Path(kept).glob("*/project/train.py")), kept


def test_a_hand_written_script_is_compared_with_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put(CORRECT, tmp_path / "split")
    assert cli.main(["verify", str(script), "--distributed-only"]) == cli.CLEAN
    assert "train the same model" in capsys.readouterr().out


def test_one_process_takes_as_many_samples_as_all_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # a batch size that each rank takes whole: one process has to take two of them
    change = ("batch_size = args.batch_size // world", "batch_size = args.batch_size")
    kept = put(changed(CORRECT, change), tmp_path / "kept")
    assert cli.main(["verify", str(kept), "--distributed-only", "--steps=4"]) == cli.CLEAN
    assert "batch size of one process times 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rate", "code", "verdict"),
    [
        pytest.param("0.1", cli.CLEAN, "pass", id="learns"),
        pytest.param("1e-9", cli.TO_DO, "fail", id="does-not-learn", marks=pytest.mark.thorough),
    ],
)
def test_a_tiny_subset_is_learned_by_heart(
    rate: str, code: int, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put(ORIGINAL, tmp_path / "project")
    asked = ["--overfit=4", "--full", "--json=-", "--", "--epochs=8", f"--lr={rate}"]
    assert cli.main(["verify", str(script), *asked]) == code
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["overfit"]["verdict"] == verdict, checks["overfit"]
    assert checks["trajectory"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("text", "flags", "sentence"),
    [
        pytest.param(None, [], "train.py: no such file", id="missing"),
        pytest.param("def f(:\n", [], "train.py:1: not valid Python 3", id="syntax"),
        pytest.param("print(1)\n", [], "train.py: no training loop found", id="no-loop"),
        pytest.param(ORIGINAL, ["--distributed-only"], "trains in one process", id="single"),
        pytest.param(ORIGINAL, ["--python=/nowhere"], "/nowhere: ", id="no-interpreter"),
        pytest.param(ORIGINAL, ["--baseline=nothing"], "git repository", id="no-baseline"),
        pytest.param(CORRECT, [], "is distributed already", id="no-original"),
        pytest.param(
            changed(ORIGINAL, ("    model = Net()", "    raise ValueError('broken')")),
            [],
            "train.py: no training loop found",
            id="unreachable",
        ),
        pytest.param(
            changed(ORIGINAL, ("def main():", "def main():\n    int('broken')\n")),
            [],
            "the original fails by itself (ValueError",
            id="original-fails",
        ),
    ],
)
def test_what_cannot_be_compared_is_said_at_once(
    text: str | None,
    flags: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = put(text or "", tmp_path / "project")
    if text is None:
        script.unlink()
    assert cli.main(["verify", str(script), *flags]) == cli.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    errors = [line for line in said.err.splitlines() if not line.startswith("ddpify: running")]
    assert errors[0].startswith("ddpify: ")
    assert sentence in errors[0]


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)]
)
def test_interrupted_it_leaves_nothing_behind(how: signal.Signals, tmp_path: Path) -> None:
    endless = changed(
        ORIGINAL,
        ("            loss.backward()\n", "            loss.backward(); time.sleep(0.2)\n"),
    ).replace("import argparse", "import argparse, time")
    script = put(endless, tmp_path / "project")
    (tmp_path / "scratch").mkdir()
    job = subprocess.Popen(
        [sys.executable, "-m", "ddpify", "verify", script, "--", "--epochs=1000"],
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        children = trains(job, tmp_path / "scratch")
        job.send_signal(how)
        _, errors = job.communicate(timeout=30)
    finally:
        job.terminate()
        job.communicate()
    assert job.returncode == cli.INTERRUPTED, errors
    assert "ddpify: interrupted." in errors
    assert not [child for child in children if alive(child)]
    assert not list((tmp_path / "scratch").glob("ddpify-*"))  # torch leaves folders of its own


def alive(process: psutil.Process) -> bool:
    """What has ended and was not yet collected by its parent is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def trains(job: subprocess.Popen[str], scratch: Path) -> list[psutil.Process]:
    """Wait until a step was recorded; all processes of the job."""
    for _ in range(600):
        records = scratch.glob("ddpify-verify-*/records/*/rank0.jsonl")
        if any('"step"' in record.read_text() for record in records):
            return psutil.Process(job.pid).children(recursive=True)
        time.sleep(0.1)
    raise AssertionError("no step was recorded within a minute")


def test_without_git_the_original_is_what_undo_would_bring_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put(ORIGINAL, tmp_path / "project")
    assert cli.main(["migrate", str(script), "--inplace"]) == cli.CLEAN
    with script.open("a") as file:
        file.write("# edited since\n")
    found = pair(Options(script), Settings(), tmp_path)
    assert (found.original / script.name).read_text() == ORIGINAL
    assert not list(found.original.glob("ddp_*.py"))
    assert "# edited since" in (found.distributed / script.name).read_text()
    assert f"before `ddpify migrate {script} --inplace`" in found.baseline
