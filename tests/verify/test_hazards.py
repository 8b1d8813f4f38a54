"""Every hazard, migrated wrongly: verify fails, in the right checks, and names the cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddpify.verify.run import verify
from ddpify.verify.verdict import Check, Verdict, Verification
from tests.verify.hazards import (
    b1_data,
    b1_gradients,
    b1_losses,
    b2_files,
    b2_paths,
    b3_batches,
    b3_columns,
    b3_sharding,
    reviewed,
)
from tests.verify.hazards.base import CORRECT, ORIGINAL, Hazard

pytestmark = [pytest.mark.training, pytest.mark.spread]

FAMILIES = (
    b1_gradients,
    b1_losses,
    b1_data,
    b2_paths,
    b2_files,
    b3_sharding,
    b3_batches,
    b3_columns,
    reviewed,
)
HAZARDS = tuple(hazard for family in FAMILIES for hazard in family.HAZARDS)
CLASSES = {f"B1.{n}" for n in range(1, 12)} | {f"B2.{n}" for n in range(12, 25)}
CLASSES |= {f"B3.{n}" for n in range(25, 38)}
USUAL = Hazard("usual", "", "", ORIGINAL, "", (), right=CORRECT)
# In every run a gradient, a loss, a file and a shard that are wrong, and two right programs that
# came close to being called wrong: a verification starts seven processes. The other programs, one
# for each check that fails first and each rule that a cause may name among them, and all right ones
# are thorough, see CONTRIBUTING.md; each check by itself is in test_checks_*.py.
CLOSE = ("usual", "B3.31")
FIRST = ("B1.1", "B1.9", "B2.12", "B3.25")


def wrong(hazard: Hazard) -> Any:
    return _marked(hazard, thorough=hazard.number not in FIRST)


def right(hazard: Hazard) -> Any:
    return _marked(hazard, thorough=hazard.number not in CLOSE)


def _marked(hazard: Hazard, *, thorough: bool) -> Any:
    return pytest.param(hazard, id=hazard.number, marks=[pytest.mark.thorough] * thorough)


def test_every_class_of_hazards_has_a_program() -> None:
    assert {hazard.number for hazard in HAZARDS} >= CLASSES


def test_numbers_are_used_once() -> None:
    numbers = [hazard.number for hazard in HAZARDS]
    assert sorted(set(numbers)) == sorted(numbers)


@pytest.mark.parametrize("hazard", [wrong(h) for h in HAZARDS])
def test_a_wrong_migration_fails_for_its_cause(hazard: Hazard, tmp_path: Path) -> None:
    result = verify(hazard.options(tmp_path))
    assert not result.passed, described(result)
    wrong = {check.name for check in result.checks if check.verdict is Verdict.FAIL}
    assert wrong >= set(hazard.failing), described(result)
    assert result.causes, described(result)
    assert result.causes[0].rule == hazard.rule, described(result)


@pytest.mark.parametrize("hazard", [right(h) for h in (USUAL, *HAZARDS) if h.right])
def test_the_migration_that_avoids_it_passes(hazard: Hazard, tmp_path: Path) -> None:
    result = verify(hazard.options(tmp_path, hazard.right))
    assert result.passed, described(result)
    assert not result.causes, described(result)


def described(result: Verification) -> str:
    """What went otherwise than expected."""
    causes = "\n".join(f"{c.rule} {c.title}: {c.evidence}" for c in result.causes)
    return "\n".join([*map(_line, result.checks), causes])


def _line(check: Check) -> str:
    return "  ".join((check.verdict.value, check.name, check.measured, *check.details))
