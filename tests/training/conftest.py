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
    """Three epochs without batch norm on two ranks, and their reference."""

    @functools.cache
    def run(project: Project) -> Trained:
        trees = workshop.original(project, "reference"), workshop.migrated(project, "ranks")
        argv = project.argv(*project.plain)
        return train_both(trees, argv, workshop.observed(project, "ranks"))

    return run
