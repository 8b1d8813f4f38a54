"""Pairs of runs, started side by side: most of a run is importing torch on one core."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.support.recording import Run
from tests.support.run import run_distributed, run_single
from tests.training.projects import Project

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Trained:
    """The original in one process, in the global order of the ranks, and the migrated project."""

    reference: Run
    reference_tree: Path
    runs: tuple[Run, ...]
    tree: Path


Train = Callable[[Project, int, bool], Trained]  # on so many ranks, in float64 or not


def train_both(
    trees: tuple[Path, Path], argv: list[str], ranks: int, out: Path, **options: Any
) -> Trained:
    """Train the original and the migrated tree; both must finish."""
    before, after = trees
    reference, runs = side_by_side(
        lambda: run_single(before, argv, out / "1", global_order=ranks, **options),
        # the ranks do not start together where there are more of them than cores
        lambda: run_distributed(after, argv, ranks, out / "n", timeout=60, **options),
    )
    assert reference.status == "finished", reference.stderr
    assert {run.status for run in runs} == {"finished"}, "\n".join(run.stderr for run in runs)
    return Trained(reference, before, tuple(runs), after)


def side_by_side(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    with ThreadPoolExecutor(max_workers=1) as pool:
        other = pool.submit(second)
        return first(), other.result()
