"""Starts observe.py on small programs, in one process or on ranks, and reads the records."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ddpify.verify
from ddpify.verify.read import load_run
from ddpify.verify.recording import RunRecord
from tests.support.torchrun import torchrun

OBSERVE = Path(ddpify.verify.__file__).with_name("observe.py")
PROGRAMS = Path(__file__).with_name("programs")
QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "PYTHONPATH")


def project(folder: Path) -> Path:
    """A copy of the programs, without ddpify in reach."""
    return Path(shutil.copytree(PROGRAMS, folder / "project", dirs_exist_ok=True))


def environment() -> dict[str, str]:
    outer = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
    return {**outer, **QUIET}


def run_single(folder: Path, command: str, out: Path, *options: str) -> RunRecord:
    """``python command`` in ``folder``; whatever it exits with."""
    done = subprocess.run(
        [
            *(sys.executable, str(OBSERVE), f"--out={out}", f"--watch={folder}", *options),
            *("--", *command.split()),
        ],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    run = load_run(out, 0, stdout=done.stdout, stderr=done.stderr)
    assert run.exit_code in (None, done.returncode), done.stderr
    return run


def run_ranks(folder: Path, command: str, out: Path, *options: str) -> list[RunRecord]:
    """The same on two ranks under torchrun."""
    done = torchrun(
        OBSERVE,
        2,
        *(f"--out={out}", f"--watch={folder}", "--group-timeout=20", *options),
        *("--", *command.split()),
        cwd=folder,
        env=QUIET,
        timeout=120,
        before_attempt=lambda: shutil.rmtree(out, ignore_errors=True),
        python=sys.executable,  # how it imports torch is what is observed
    )
    return [
        load_run(out, rank, stdout=done.rank_stdout[rank], stderr=done.rank_stderr[rank])
        for rank in range(2)
    ]


def said(run: RunRecord, key: str) -> str:
    """The rest of the first line printed that begins with ``key``."""
    lines = run.stdout.splitlines()
    found = next((line for line in lines if line.startswith(key)), None)
    assert found is not None, run.stderr
    return found.removeprefix(key).strip()
