"""A file whose names are no longer bound is not written, whichever fix unbound them."""

from __future__ import annotations

import pytest

from ddpify.plan import Change
from ddpify.unbound import refusals

FLAT = "for _ in range(3):\n    step(_)\n"
INSIDE = "def main():\n    for _ in range(3):\n        print(_)\n"
READS = "from library import *\n\nprint(chosen)\n"


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        pytest.param(FLAT, FLAT.replace("for _", "for epoch"), "_", id="of the module"),
        pytest.param(INSIDE, INSIDE.replace("for _", "for epoch"), "_", id="of a function"),
        pytest.param(INSIDE, INSIDE.replace("_", "epoch"), "", id="renamed everywhere"),
        pytest.param(FLAT, f"step = max\n{FLAT}", "", id="unbound before"),
        pytest.param(READS, READS.replace("(chosen", "(min, chosen"), "", id="by a star, built in"),
        pytest.param("print 1\n", FLAT, "", id="not Python 3 before"),
        pytest.param(None, FLAT, "", id="a new file"),
    ],
)
def test_names_that_nothing_binds_any_more(before: str | None, after: str, lost: str) -> None:
    change = Change("main.py", before.encode() if before else None, after.encode(), ())

    assert [f"`{lost}`" in one.message for one in refusals([change])] == ([True] if lost else [])
