"""README.md has a row for every rule, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddpify.rules.registry import all_rules, conversions

HERE = Path(__file__).parent
TABLE = (HERE / "README.md").read_text()
pytestmark = pytest.mark.thorough


def test_every_rule_has_a_row() -> None:
    missing = {rule.id for rule in (*all_rules(), *conversions())} - {*re.findall(r"DDP\d+", TABLE)}
    assert not missing, f"what do they say of torch? {sorted(missing)}"


def test_every_test_is_named_and_there() -> None:
    """Tests of this folder, and one that tests/lightning had before."""
    files = [*HERE.glob("test_*.py"), HERE.parent / "lightning" / "test_library.py"]
    text = "\n".join(file.read_text() for file in files if file != Path(__file__))
    assert {*re.findall(r"`(test_\w+)`", TABLE)} == {*re.findall(r"^def (test_\w+)", text, re.M)}
