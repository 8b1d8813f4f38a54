"""`migrate` ends with an answer, whatever file it is given: no traceback, no endless reading."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.rules.examples.single import LEARNER, LEGACY, SINGLE
from ddpify.settings import Settings
from tests.laws.fuzz import mutated
from tests.projects import put_example

EXAMPLES = {"single": SINGLE, "learner": LEARNER, "legacy": LEGACY}
SEEDS = [0, *(pytest.param(number, marks=pytest.mark.thorough) for number in range(1, 40))]


def _answers(file: Path) -> bool:
    outcome = migrate([file], Settings())
    return bool(outcome.refusals or outcome.findings or outcome.notes or outcome.account)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_program_with_small_faults(name: str, seed: int, tmp_path: Path) -> None:
    entry = put_example(EXAMPLES[name], tmp_path)
    whole, draw = entry.read_text(), random.Random(seed)
    for _ in range(10):
        entry.write_text(mutated(whole, draw))
        assert _answers(entry)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_two_thousand_public_files_as_entries(tmp_path: Path) -> None:
    """Those of the installed packages, each by itself, and each with small faults."""
    files = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    draw = random.Random(0)
    entry = tmp_path / "entry.py"
    for file in draw.sample([f for f in files if b"torch" in f.read_bytes()], 2000):
        entry.write_bytes(file.read_bytes())
        assert _answers(entry), file
        entry.write_text(mutated(entry.read_text(errors="replace"), draw))
        assert _answers(entry), file
