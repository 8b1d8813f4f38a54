"""What `migrate` finds does not hang on how a flat script is cut into functions, files, a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.rules.examples.single import LEGACY, SINGLE
from ddpify.settings import Settings
from tests.lint.cases import Case
from tests.lint.flat import as_class, in_files, in_main
from tests.projects import put

EXAMPLES = {"single": SINGLE, "legacy": LEGACY}


def _found(case: Case, folder: Path) -> Counter[str]:
    outcome = migrate([put(dict(case.files), folder) / "main.py"], Settings())
    assert not outcome.refusals
    return Counter(one.rule for one in outcome.findings)


@pytest.mark.parametrize(
    ("name", "vary"),
    [
        ("legacy", in_main),
        ("legacy", as_class),
        ("single", as_class),
        ("single", in_files),
    ],
)
def test_the_same_is_found(name: str, vary: Callable[[Case], Case | None], tmp_path: Path) -> None:
    case = Case(name, "", "", "good", "", EXAMPLES[name].files)
    made = vary(case)
    assert made is not None
    assert made.files != case.files
    assert _found(made, tmp_path / "made") == _found(case, tmp_path / "whole")
