"""A migrated fixture has no findings; leaving any one rewrite out brings exactly that one back."""

from __future__ import annotations

import difflib
import functools
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpify import launchers
from ddpify.pipeline import check, migrate
from ddpify.plan import Plan
from ddpify.project import Project
from ddpify.rewrite import render
from ddpify.rules.base import Finding
from ddpify.settings import Settings
from ddpify.source import Source
from tests.projects import ENTRIES, FIXTURES, put_fixture, write

VENDORED = "DDP001"


@dataclass(frozen=True)
class Migration:
    """A fixture's migration, and the text of all files it may change."""

    findings: tuple[Finding, ...]
    sources: dict[str, Source]

    @property
    def fixed(self) -> tuple[Finding, ...]:
        """The findings that rewrite something, the runtime's file apart."""
        return tuple(f for f in self.findings if f.fix and f.rule != VENDORED)


@functools.cache
def migration(name: str, folder: Path) -> Migration:
    entry = put_fixture(name, folder)
    outcome = migrate([entry], Settings())
    assert not outcome.refusals
    paths = {path for path in outcome.files if path.endswith(".py")}
    sources = {path: Source.read(folder / path, path) for path in sorted(paths)}
    for path in launchers.discover(folder, outcome.entries):
        file = folder / path
        sources[path] = Source.plain(file.read_bytes(), file, path)
    return Migration(outcome.findings, sources)


def mutated(name: str, number: int, folder: Path) -> tuple[Finding, tuple[Finding, ...], Path]:
    """(the finding left unfixed, what check finds, the project)."""
    made = migration(name, folder / "original")
    left_out = made.fixed[number]
    plan = Plan.of([finding for finding in made.findings if finding is not left_out])
    assert not plan.clashes
    project = folder / f"without-{number}"
    entry = put_fixture(name, project)
    write(render(plan, made.sources), project)
    found = check([entry], Settings())
    assert not found.refusals
    return left_out, found.findings, project
