"""The runs that several proofs look at, each started once and only when a proof asks."""

from __future__ import annotations

import functools

import pytest

from tests.training.projects import Project, Workshop
from tests.training.runs import Train, Trained, train_both


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="session")
def train(workshop: Workshop) -> Train:
    """Three epochs without batch norm on so many ranks, and their reference."""

    @functools.cache
    def run(project: Project, ranks: int, float64: bool) -> Trained:
        name = f"{ranks}-{'float64' if float64 else 'float32'}"
        before = workshop.original(project, f"reference-{name}")
        after = workshop.migrated(project, f"ranks-{name}")
        out = workshop.observed(project, name)
        argv = project.argv(*project.plain)
        return train_both((before, after), argv, ranks, out, float64=float64)

    return run
