"""Random streams are forked before the first pass over a loader begins, wherever that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.examples import SINGLE, changed
from tests.projects import judged, put_example, read

LOOP = "    for round_ in range(5):\n"


@pytest.mark.parametrize(
    ("before", "line"),
    [("", LOOP), ("    batches = iter(fitting)\n", "    batches = iter(fitting)\n")],
)
def test_streams_are_forked_before_the_first_pass(before: str, line: str, tmp_path: Path) -> None:
    entry = put_example(changed(SINGLE, (LOOP, before + LOOP)), tmp_path)
    (fork,) = [f for f in judged(read(entry)) if f.rule == "DDP111"]
    lines = entry.read_text().splitlines(keepends=True)
    assert lines[fork.fix[0].site.span.line - 1] == line
