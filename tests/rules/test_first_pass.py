"""Random streams are forked before the first pass over a loader begins, wherever that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.examples import SINGLE, changed
from tests.projects import judged, put_example, read

LOOP = "    for round_ in range(5):\n"


STEPS = (
    "        for signal, label in fitting:\n",
    "        if round_ % 25 == 0:\n            pairs = iter(fitting)\n"
    "        signal, label = next(pairs)\n        if True:\n",
)
BEGUN = "    batches = iter(fitting)\n"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param((STEPS,), LOOP, id="steps"),
        pytest.param(((LOOP, BEGUN + LOOP),), BEGUN, id="begun above"),
        pytest.param((), "", id="told at the head of the epochs"),
    ],
)
def test_streams_are_forked_before_the_first_pass(
    changes: tuple[tuple[str, str], ...], line: str, tmp_path: Path
) -> None:
    entry = put_example(changed(SINGLE, *changes), tmp_path)
    found = [f for f in judged(read(entry)) if f.rule == "DDP111"]
    lines = entry.read_text().splitlines(keepends=True)
    assert [lines[f.fix[0].site.span.line - 1] for f in found] == ([line] if line else [])
