"""The runs that several proofs look at, each started once and only when a proof asks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.recording import Run
from tests.support.run import run_distributed, run_single
from tests.training.projects import Project, Workshop


@dataclass(frozen=True)
class Trained:
    """The original in one process, and the migrated project, each with its tree."""

    reference: Run
    reference_tree: Path
    runs: tuple[Run, ...]
    tree: Path


Train = Callable[[Project, int, bool], Trained]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="session")
def train(workshop: Workshop) -> Train:
    """Three epochs without batch norm on so many ranks, and their reference."""

    @functools.cache
    def run(project: Project, ranks: int, float64: bool) -> Trained:
        name = f"{ranks}-{'float64' if float64 else 'float32'}"
        argv = project.argv(*project.plain)
        before = workshop.original(project, f"reference-{name}")
        tree = workshop.migrated(project, f"ranks-{name}")
        out = workshop.folder / f"observed-{project.folder}-{name}"
        reference = run_single(before, argv, out / "1", global_order=ranks, float64=float64)
        runs = run_distributed(tree, argv, ranks, out / "n", float64=float64)
        assert reference.status == "finished", reference.stderr
        assert {r.status for r in runs} == {"finished"}, "\n".join(r.stderr for r in runs)
        return Trained(reference, before, tuple(runs), tree)

    return run
