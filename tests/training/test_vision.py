"""The three-task project, launched as its users launch it and interrupted as they fear it.

That each task trains the same model on 1, 2 and 4 ranks is shown in tests/verify/test_fixtures.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil
import pytest
import torch

from ddpify import cli
from ddpify.verify.checks.lines import differences, lines
from ddpify.verify.identity import in_text, same_names
from tests.projects import VISION, put_fixture
from tests.support import warm
from tests.support.torchrun import (
    ATTEMPTS,
    EXIT_RACE,
    Completed,
    finish,
    kill,
    start,
    torchrun,
)
from tests.training import judges
from tests.training.projects import edit
from tests.training.runs import one_process, side_by_side

pytestmark = pytest.mark.training

DATA = ("--num-val=27", "--batch-size=16", "--num-workers=0", "--vis-every=9")
SMALL = (*DATA, "--num-train=32", "--epochs=2", "--save-every=1", "--seed=7")
GPUS = 'GPU_IDS="0,1,2,3"'


@dataclass(frozen=True)
class Project:
    """The migrated project; its launchers name two GPUs."""

    folder: Path

    def launch(self, task: str, out: str) -> Path:
        """Its rewritten script, to the end; the experiment's folder."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {"PATH": path, "SEEDS": "7", "GPU": "0,1"}
        command = ["bash", f"scripts/run_{task}.sh", *SMALL, f"--output-dir={out}"]
        for _ in range(ATTEMPTS):
            shutil.rmtree(self.folder / out, ignore_errors=True)
            job = start(command, self.folder, env)
            said, errors = finish(job)
            if EXIT_RACE not in errors:
                break
        assert job.returncode == 0, errors
        assert said.count("Results in : ") == 1, said
        return self.experiment(out)

    def run(self, task: str, out: str, *arguments: str) -> Completed:
        """On two ranks, without the script."""
        script, output = f"main_{task}.py", f"--output-dir={out}"
        folder = self.folder / out
        return torchrun(
            *(script, 2, *SMALL, *arguments, output),
            cwd=self.folder,
            timeout=120,
            before_attempt=lambda: shutil.rmtree(folder, ignore_errors=True),
        )

    def killed(self, out: str, sent: signal.Signals) -> str:
        """Rank 1 of two gets a signal in its second epoch; what the job says when it has ended."""
        module = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        script = ["--nproc-per-node=2", "main_classification.py", *SMALL, f"--output-dir={out}"]
        job = start([*module, *script], self.folder)
        try:
            epoch_has_begun(job, self.folder / out)
            os.kill(rank_of(job, 1), sent)
            _, errors = finish(job)
        finally:
            kill(job)
        assert job.returncode != 0
        assert "main_classification.py FAILED" in errors
        return errors

    def experiment(self, out: str) -> Path:
        """The one folder below ``out``: every rank has to write into the same."""
        (found,) = (self.folder / out).iterdir()
        return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = put_fixture("vision-detection", tmp_path_factory.mktemp("vision") / "project").parent
    for name in ("run_segmentation.sh", "run_detection.sh"):
        edit(folder / "scripts" / name, (GPUS, 'GPU_IDS="0,1"'))
    assert cli.main(["migrate", str(folder), "--inplace"]) == cli.CLEAN
    return Project(folder)


@pytest.fixture(scope="module")
def launched(project: Project) -> Callable[[str], Path]:
    """The experiment of a task's script on two ranks, run once."""
    done: dict[str, Path] = {}

    def run(task: str) -> Path:
        if task not in done:
            done[task] = project.launch(task, f"launched-{task}")
        return done[task]

    return run


def some(chosen: str) -> list[object]:
    """One task in every run, the others thorough."""
    marks = {task: [] if task == chosen else [pytest.mark.thorough] for task in VISION}
    return [pytest.param(task, marks=marks[task]) for task in VISION]


@pytest.mark.parametrize("task", some("detection"))
def test_the_rewritten_script_trains_and_a_resumed_run_continues_it(
    task: str, project: Project, launched: Callable[[str], Path]
) -> None:
    """Bit for bit, with dropout and augmentation: the resumed one is on two ranks for certain."""
    whole = launched(task)
    assert json.loads((whole / "summary.json").read_text())["epochs_run"] == 2
    first = whole / "checkpoints" / "epoch_001.pt"
    resumed = project.run(task, f"resumed-{task}", f"--resume={first}")
    assert resumed.returncode == 0, resumed.stderr
    same_state(whole, project.experiment(f"resumed-{task}"))


def test_two_nodes_train_as_one_does(project: Project, launched: Callable[[str], Path]) -> None:
    """Two agents that meet on the loopback, one rank each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test"]
    nodes = ["--nnodes=2", "--nproc-per-node=1", "--local-addr=127.0.0.1", *meeting]
    command = [warm.python(), "-m", "torch.distributed.run", *nodes, "main_detection.py", *SMALL]
    jobs = [start([*command, "--output-dir=nodes"], project.folder) for _ in range(2)]
    try:
        said = [finish(job) for job in jobs]
    finally:
        for job in jobs:
            kill(job)
    assert [job.returncode for job in jobs] == [0, 0], said
    assert sorted("Results in : " in out for out, _ in said) == [False, True]
    same_state(launched("detection"), project.experiment("nodes"))


@pytest.mark.thorough
def test_a_job_that_lost_a_rank_ends_and_a_restart_makes_up_for_it(
    project: Project, launched: Callable[[str], Path]
) -> None:
    errors = project.killed("killed", signal.SIGKILL)
    assert "Signal 9 (SIGKILL) received" in errors
    cut = project.experiment("killed") / "checkpoints"
    assert {path.name for path in cut.iterdir()} <= {"last.pt", "best.pt", "epoch_001.pt"}
    again = project.run("classification", "restarted", f"--resume={cut / 'last.pt'}")
    assert again.returncode == 0, again.stderr
    same_state(launched("classification"), project.experiment("restarted"))


def test_a_rank_that_is_interrupted_ends_the_job_with_its_traceback(project: Project) -> None:
    errors = project.killed("interrupted", signal.SIGINT)
    assert "[rank1]: KeyboardInterrupt" in errors


@pytest.mark.parametrize("task", some("segmentation"))
def test_one_process_computes_prints_and_writes_the_same(task: str, tmp_path: Path) -> None:
    same_alone(task, f"main_{task}.py", tmp_path)


def test_a_script_that_is_not_migrated_runs_on_modules_that_are(tmp_path: Path) -> None:
    same_alone("segmentation", "main_detection.py", tmp_path)


# What the README of the project says, reached with the arguments that are the default.
STATED = {"segmentation": 0.60, "detection": 0.60, "classification": 0.97}


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [0, 2])
@pytest.mark.parametrize("task", VISION)
def test_a_task_learns_what_its_readme_says(task: str, ranks: int, project: Project) -> None:
    """0 ranks is plain python."""
    out = f"learned-{task}-{ranks}"
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    script = [f"main_{task}.py", "--num-workers=0", f"--output-dir={out}"]
    job = start([sys.executable, *(torchrun if ranks else []), *script], project.folder)
    _, errors = finish(job, 280)
    assert job.returncode == 0, errors
    summary = json.loads((project.experiment(out) / "summary.json").read_text())
    assert summary["best"] >= STATED[task]


def same_alone(task: str, script: str, folder: Path) -> None:
    """In one process ``task`` is what it was before ``script`` was migrated."""
    before, after = (put_fixture(f"vision-{task}", folder / n).parent for n in ("one", "two"))
    assert cli.main(["migrate", str(after / script), "--inplace"]) == cli.CLEAN
    argv = [f"main_{task}.py", *SMALL, "--output-dir=out"]
    jobs = side_by_side(
        lambda: one_process(before, argv, folder / "1"),
        lambda: one_process(after, argv, folder / "2"),
    )
    assert all(job.finished for job in jobs), [job.runs[0].stderr for job in jobs]
    judges.same_bits(jobs[0].runs[0], jobs[1].runs[0])
    names = same_names(after, written(before), written(after))  # of another second
    assert written(after) == written(before)
    same_text(jobs[0].runs[0].stdout, in_text(jobs[1].runs[0].stdout, names))
    for path in written(before):
        if path.endswith((".csv", ".json", ".txt", ".log")):
            same_text((before / path).read_text(), in_text((after / path).read_text(), names))
    same_state(*(next((tree / "out").iterdir()) for tree in (before, after)))


def same_state(one: Path, other: Path) -> None:
    """The last checkpoints hold the same weights, optimizer and schedule, bit for bit."""
    states = [last(folder) for folder in (one, other)]
    for part in ("epoch", "best_metric", "model", "optimizer", "scheduler"):
        judges.same_content(states[0][part], states[1][part], part)


def last(experiment: Path) -> dict[str, Any]:
    path = experiment / "checkpoints" / "last.pt"
    loaded: dict[str, Any] = torch.load(path, weights_only=False)
    return loaded


def epoch_has_begun(job: Popen[str], out: Path) -> None:
    """Wait until the first epoch is saved: the second has begun then."""
    while job.poll() is None:
        if list(out.glob("*/checkpoints/epoch_001.pt")):
            return
        time.sleep(0.01)
    raise AssertionError(finish(job))


def rank_of(job: Popen[str], rank: int) -> int:
    """The process that is this rank."""
    for process in psutil.Process(job.pid).children(recursive=True):
        if process.environ().get("RANK") == str(rank):
            return process.pid
    raise AssertionError(f"no rank {rank}")


def written(tree: Path) -> tuple[str, ...]:
    """The files below the output folder; TensorBoard puts the clock into its names."""
    files = (path for path in (tree / "out").rglob("*") if path.is_file())
    kept = (path for path in files if "tfevents" not in path.name)
    return tuple(sorted(path.relative_to(tree).as_posix() for path in kept))


def same_text(expected: str, found: str) -> None:
    """The same lines but for the clock."""
    assert not list(differences(lines(expected), lines(found), 0.0))
