"""Trains a project for real, as one process or as ranks under torchrun, and hands back the Runs.

Both start observe.py, so that the project's own files stay as they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.recording import Run, load_run
from tests.support.torchrun import torchrun

OBSERVE = Path(__file__).with_name("observe.py")
_QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Observation:
    """observe.py's options. ``timeout`` is the process group's, in seconds."""

    global_order: int = 0
    first_epoch: int = 0
    float64: bool = False
    neutral_dropout: bool = False
    neutral_batchnorm: bool = False
    timeout: float = 20
    watch: Path = Path()

    def arguments(self, out: Path, argv: Sequence[str]) -> list[str]:
        values = (
            f"--out={out.resolve()}",
            f"--global-order={self.global_order}",
            f"--first-epoch={self.first_epoch}",
            f"--timeout={self.timeout}",
            f"--watch={self.watch}",
        )
        flags = ("float64", "neutral_dropout", "neutral_batchnorm")
        chosen = [f"--{flag.replace('_', '-')}" for flag in flags if getattr(self, flag)]
        return [*values, *chosen, "--", *argv]


def run_single(
    project_dir: Path, argv: Sequence[str], out: Path, *, limit: float = 120, **options: Any
) -> Run:
    """``python argv`` in ``project_dir``; argv is ["main.py", ...] or ["-m", "package", ...]."""
    _forget(out)
    done = subprocess.run(
        [sys.executable, str(OBSERVE), *Observation(**options).arguments(out, argv)],
        cwd=project_dir,
        env={**_without_launcher(os.environ.items()), **_QUIET},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    return load_run(out, 0, stdout=done.stdout, stderr=done.stderr, returncode=done.returncode)


def run_distributed(
    project_dir: Path,
    argv: Sequence[str],
    nproc: int,
    out: Path,
    *,
    limit: float = 120,
    **options: Any,
) -> list[Run]:
    """The same on ``nproc`` ranks, one Run each; a job that failed has a returncode.

    The one retry after torch's exit race starts from the files the project had before.
    """
    project_dir, out = project_dir.resolve(), out.resolve()
    before = _snapshot(project_dir)

    def prepare() -> None:
        _forget(out)
        _restore(project_dir, before, out)

    done = torchrun(
        OBSERVE,
        nproc,
        *Observation(**options).arguments(out, argv),
        cwd=project_dir,
        env=_QUIET,
        timeout=limit,
        before_attempt=prepare,
    )
    return [
        load_run(
            out,
            rank,
            stdout=done.rank_stdout[rank],
            stderr=done.rank_stderr[rank],
            returncode=done.returncode,
            launcher_output=done.stdout + done.stderr,
        )
        for rank in range(nproc)
    ]


def _without_launcher(environment: Any) -> dict[str, str]:
    """A test may itself run under a launcher; its children are their own jobs."""
    return {k: v for k, v in environment if k not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}


def _forget(out: Path) -> None:
    """Leave no recording of an earlier run to be taken for one of this run."""
    out.mkdir(parents=True, exist_ok=True)
    for path in (*out.glob("rank*.json"), *out.glob("rank*.pt")):
        path.unlink()


def _snapshot(project: Path) -> dict[Path, bytes | None]:
    """Each file's content, and None for each folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in project.rglob("*")}


def _restore(project: Path, before: dict[Path, bytes | None], out: Path) -> None:
    """Undo what an attempt wrote, apart from its recording."""
    for path in sorted(project.rglob("*"), reverse=True):
        if path in before or out.is_relative_to(path) or path.is_relative_to(out):
            continue
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    for path, content in before.items():
        if content is None:
            path.mkdir(exist_ok=True)
        elif not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)
