"""Observed runs; pairs are started side by side: most of a run is importing torch on one core."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ddpify.verify.launch import ProcessLaunch, run_ranks, run_single
from ddpify.verify.recording import Job
from tests.support import warm
from tests.training.projects import Project

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Trained:
    """The original in one process, in the global order of the ranks, and the migrated project."""

    reference: Job
    reference_tree: Path
    ranks: Job
    tree: Path


Train = Callable[[Project], Trained]


def one_process(tree: Path, argv: list[str], out: Path, *observe: str) -> Job:
    """``python argv`` in ``tree``; ``observe`` are options of ddpify's observer."""
    return run_single(_launch(tree, argv, out, observe))


def on_ranks(tree: Path, argv: list[str], count: int, out: Path, *observe: str) -> Job:
    """The same on ``count`` ranks."""
    return run_ranks(_launch(tree, argv, out, observe), count)


def train_both(trees: tuple[Path, Path], argv: list[str], out: Path) -> Trained:
    """Train the original and, on two ranks, the migrated tree; both must finish."""
    before, after = trees
    reference, ranks = side_by_side(
        lambda: one_process(before, argv, out / "1", "--global-order=2"),
        lambda: on_ranks(after, argv, 2, out / "n"),
    )
    for job in (reference, ranks):
        assert job.finished, "\n".join(run.stderr for run in job.runs)
    return Trained(reference, before, ranks, after)


def side_by_side(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    with ThreadPoolExecutor(max_workers=1) as pool:
        other = pool.submit(second)
        return first(), other.result()


def _launch(tree: Path, argv: list[str], out: Path, observe: tuple[str, ...]) -> ProcessLaunch:
    tree = tree.resolve()
    return ProcessLaunch(
        python=warm.python(),
        folder=tree,
        cwd=tree,
        script=Path(argv[0]),
        arguments=tuple(argv[1:]),
        out=out.resolve(),
        observe=("--full", *observe),
        timeout=120,
        environment={"OMP_NUM_THREADS": "1"},  # sums depend on it in the last bit
    )
