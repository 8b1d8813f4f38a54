"""Run a Lightning project on 1, 2 or 4 processes of the CPU, and read what came of it.

The project is not edited: `observer/sitecustomize.py` watches it from outside, and gives the
Trainer its number of processes where the project has no option for that.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tests.support.torchrun import descendants

FIXTURE = Path(__file__).parents[2] / "fixtures" / "lightning_imagenet"
OBSERVER = Path(__file__).parent / "observer"
# What a launcher or an earlier job may have left in the environment.
_LAUNCHED = (
    """RANK LOCAL_RANK GROUP_RANK NODE_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
PL_GLOBAL_SEED TORCHELASTIC_RUN_ID""".split()
)
# What differs between two runs that did the same.
_DIFFERENT = (
    (re.compile(r"\d{8}_\d{6}"), "<date>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d on \S+"), "<date>"),
    (re.compile(r"[\d.]+s, \d+ images/s"), "<time>"),
    (re.compile(r"Duration: [\d.]+ min"), "<time>"),
)

Launcher = Literal["lightning", "torchrun"]
Event = dict[str, Any]


@dataclass(frozen=True)
class Rank:
    """What one process did, as the observer wrote it down."""

    number: int
    events: tuple[Event, ...]
    console: str
    folder: Path

    def of(self, kind: str) -> list[Event]:
        """The events of a kind, in order."""
        return [event for event in self.events if event["kind"] == kind]

    def last(self, kind: str) -> Event:
        """The last event of a kind."""
        return self.of(kind)[-1]

    def written(self, root: Path) -> list[str]:
        """The files below ``root`` that it opened to write, once for each time."""
        paths = [Path(event["path"]) for event in self.of("written")]
        root = root.resolve()
        return [p.relative_to(root).as_posix() for p in paths if p.is_relative_to(root)]

    def batches(self, stage: str, epoch: int, of: int) -> list[list[int]]:
        """The indices of the batches it took from a data set of this length."""
        return [
            event["indices"]
            for event in self.of("batch")
            if (event["stage"], event["epoch"], event["of"]) == (stage, epoch, of)
        ]

    def samples(self, stage: str, epoch: int, of: int) -> list[int]:
        """The same, sample by sample."""
        return [index for batch in self.batches(stage, epoch, of) for index in batch]

    @cached_property
    def parameters(self) -> Any:
        """All parameters as a vector: before training and after each step (steps + 1, numbers)."""
        import torch

        return torch.load(self.folder / f"parameters{self.number}.pt", weights_only=True)


@dataclass(frozen=True)
class Run:
    """A job that ended or was ended: ``returncode`` is None if it was killed at its limit."""

    root: Path
    returncode: int | None
    output: str
    seconds: float
    ranks: tuple[Rank, ...]

    @property
    def finished(self) -> bool:
        return self.returncode == 0

    def files(self, pattern: str) -> list[Path]:
        """Files of the project's folder."""
        return sorted(self.root.glob(pattern))


def copied(project: Path, folder: Path, *without: str) -> Path:
    """A copy of a project, with its data and logs if it has been run."""
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns("__pycache__", *without))
    return folder.resolve()


def train(
    root: Path,
    out: Path,
    *arguments: str,
    processes: int = 1,
    launcher: Launcher = "lightning",
    trainer: Mapping[str, object] | None = None,
    script: str = "train.py",
    timeout: float = 30,
    limit: float = 90,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run ``script`` in ``root``; what is observed goes to ``out``, a new folder.

    ``trainer`` replaces arguments of the Trainer: by default, several processes get
    ``devices=processes, strategy="ddp"``; a project that sees to that itself is given ``{}``.
    ``timeout`` is that of collectives, ``limit`` that of the job. `environment` adds to what the
    observer is asked (see there).
    """
    if trainer is None:
        trainer = {"devices": processes, "strategy": "ddp"} if processes > 1 else {}
    out.mkdir(parents=True)
    began = time.monotonic()
    command = [*_launched(launcher, processes), script, *arguments]
    asked = {
        "OBSERVED": str(out.resolve()),
        "OBSERVED_TRAINER": json.dumps(trainer),
        "OBSERVED_TIMEOUT": str(timeout),
        **(environment or {}),
    }
    code, output = _run(command, root, _environment(asked), out / "output.txt", limit)
    seconds = time.monotonic() - began
    return Run(root, code, output, seconds, tuple(_ranks(out)))


def plain(text: str) -> str:
    """A text without what differs between two runs that did the same."""
    for pattern, word in _DIFFERENT:
        text = pattern.sub(word, text)
    return text


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint of Lightning's, or what `torch.save` wrote."""
    import torch

    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    return content


def _launched(launcher: Launcher, processes: int) -> list[str]:
    if launcher == "lightning":
        return [sys.executable]
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        f"--nproc_per_node={processes}",
    ]


def _environment(asked: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _LAUNCHED}
    path = [str(OBSERVER), *filter(None, [kept.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        **asked,
    }


def _run(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path, limit: float
) -> tuple[int | None, str]:
    """The exit status, and what all processes printed; none of them is there afterwards."""
    with log.open("wb") as file:
        job = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = job.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            for pid in descendants(job.pid):
                _kill(os.kill, pid)
        finally:
            # Lightning's ranks stay in the session of the first, even if that has ended
            _kill(os.killpg, job.pid)
            job.wait()
    return code, log.read_text(errors="replace")


def _kill(how: Any, pid: int) -> None:
    try:
        how(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended by itself


def _ranks(out: Path) -> Iterator[Rank]:
    for number, path in enumerate(sorted(out.glob("rank*.jsonl"))):
        # the last line of a rank that was killed may be a part of one
        lines = path.read_text().splitlines(keepends=True)
        events = tuple(json.loads(line) for line in lines if line.endswith("\n"))
        console = out / f"console{number}.txt"
        text = console.read_text() if console.exists() else ""
        yield Rank(number, events, text, out)
