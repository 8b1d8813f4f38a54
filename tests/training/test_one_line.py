"""A line of a program written otherwise: trained as it was, or refused, or said what is not.

Each variant in the tables of ``one_line`` really trains, as one process and on two ranks. Its first
line says what is right: ``same``, ``whole`` (the same, by whole batches on every rank),
``refused``, ``named`` (a number is shown that is rank 0's, and `migrate` says so), or ``known``:
different without a word, which the README lists under its limits. No other may be that; of what
draws in each step for itself (``drawn``) the ranks have the same parameters, and other ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.one_line.reader import wanted

pytestmark = [pytest.mark.training, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
WANTED = wanted()
OFTEN = [name for place, name in enumerate(WANTED) if place % 24 == 0]
SELDOM = [name for name in WANTED if name not in OFTEN]
PARTS = 8


def judged(names: list[str], *flags: str) -> dict[str, tuple[str, str]]:
    """What became of each, and what was told of it: in one process, which imports torch once."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.one_line.runs", *flags, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(results) == len(names), done.stderr[-2000:]
    return {one["name"]: (_word(one), str(one["told"])) for one in results}


def _word(result: dict[str, object]) -> str:
    if result["outcome"] == "same":
        return "whole" if result["whole"] else "same"
    if result["outcome"] == "different":
        return "named" if result["named"] else "known"
    return str(result["outcome"])


def _is_right(word: str, told: str, wanted: str) -> bool:
    """Whether that is what became of it: ranks whose parameters part say so first."""
    drawn = wanted == "drawn" and word == "known" and told.startswith("printed")
    return drawn or word == wanted


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(OFTEN, id="some"),
        *(
            pytest.param(SELDOM[part::PARTS], id=f"others-{part}", marks=pytest.mark.thorough)
            for part in range(PARTS)
        ),
    ],
)
def test_no_program_is_trained_otherwise_without_a_word(names: list[str]) -> None:
    others = {n: one for n, one in judged(names).items() if not _is_right(*one, WANTED[n])}

    assert not others


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(OFTEN[::4], id="some"),
        *(
            pytest.param([*WANTED][part::PARTS], id=f"all-{part}", marks=pytest.mark.thorough)
            for part in range(PARTS)
        ),
    ],
)
def test_no_program_is_sharded_otherwise_without_a_word(names: list[str]) -> None:
    """With ``--strategy fsdp`` more is refused; where DDP is not the same, FSDP need not be."""
    ends = {name for name in names if WANTED[name] in ("known", "named", "drawn")}
    found = judged(names, "--fsdp")
    assert not {n: one for n, one in found.items() if one[0] == "known" and n not in ends}
    assert "same" in {word for word, _ in found.values()}
