"""No silent escape: what is hidden from the reader is named, or the migration is refused.

One thing of a program that is migrated is hidden: an import does not resolve any more, a helper is
chosen while the program runs, a model lies in an object of a class that nobody read. Then nothing
is written, or what would be written is the same, or it is said what could not be followed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.rules.base import Example
from ddpify.rules.examples.single import LEARNER, LEGACY, SINGLE
from ddpify.settings import Settings
from tests.laws.sabotage import is_said, mutants
from tests.projects import ENTRIES, put_example, put_fixture, read

EXAMPLES = {"single": SINGLE, "learner": LEARNER, "legacy": LEGACY}
PROGRAMS = [*EXAMPLES, *(pytest.param(name, marks=pytest.mark.thorough) for name in ENTRIES)]


def put(name: str, folder: Path) -> Path:
    example: Example | None = EXAMPLES.get(name)
    return put_fixture(name, folder) if example is None else put_example(example, folder)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_hidden_is_named(name: str, tmp_path: Path) -> None:
    entry = put(name, tmp_path / "whole")
    known = migrate([entry], Settings())
    assert not known.refusals
    hidden = list(mutants(read(entry)))
    assert len(hidden) >= 2
    silent = [str(one) for one in hidden if not is_said(one, entry, known)]
    assert not silent
