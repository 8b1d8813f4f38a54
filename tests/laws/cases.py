"""What the laws are tried on: the fixtures, and every bad example that can be migrated."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.rules.base import Example
from ddpify.rules.registry import all_rules
from ddpify.settings import Settings
from tests.projects import ENTRIES, put_example, put_fixture, unmarked, write

Put = Callable[[Path], Path]  # writes a project into a folder; its entry


@dataclass(frozen=True)
class Case:
    """A project, what migrate makes of it, and where both versions lie."""

    outcome: Outcome
    before: Path
    after: Path

    @property
    def entry(self) -> Path:
        """The entry script of the migrated project."""
        return self.after / self.outcome.entries[0]

    @cached_property
    def again(self) -> Outcome:
        """What migrate makes of the migrated project."""
        return migrate([self.entry], Settings())


def fixture_cases() -> list[object]:
    return [pytest.param(_fixture(name), id=name) for name in ENTRIES]


def example_cases() -> list[object]:
    """Each once: several rules mark their line in one project. One of a rule, others thorough."""
    first = {}
    for rule in all_rules():
        for number, example in enumerate(rule.bad):
            files = tuple((path, unmarked(text)) for path, text in example.files)
            marks = (pytest.mark.thorough,) if number else ()
            case = pytest.param(_example(example), id=f"{rule.id}-{number}", marks=marks)
            first.setdefault(files, case)
    return list(first.values())


def _fixture(name: str) -> Put:
    return lambda folder: put_fixture(name, folder)


def _example(example: Example) -> Put:
    return lambda folder: put_example(example, folder)


def case(put: Put, folder: Path) -> Case:
    """Migrate the project into a copy of it."""
    entry = put(folder / "before")
    outcome = migrate([entry], Settings())
    after = folder / "after"
    shutil.copytree(folder / "before", after)
    write(outcome.changes, after)
    return Case(outcome, folder / "before", after)
