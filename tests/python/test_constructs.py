"""Both readers follow the table of Python constructs, but for the gaps that it names."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.projects import put
from tests.python.readers import by_facts, by_ranks
from tests.python.rows import READERS, Line, Row, all_rows

ROWS = all_rows()
READ: dict[str, Callable[[Path], frozenset[Line]]] = {"facts": by_facts, "ranks": by_ranks}
FOLLOWED = {"facts": 0.95, "ranks": 0.6}  # how much of the table


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_python_hands_on_arrives(row: Row, reader: str, tmp_path: Path) -> None:
    arrived = READ[reader](put(dict(row.files), tmp_path) / "main.py")
    gap = dict(row.gaps).get(reader)
    if row.followed(arrived):
        assert gap is None, f"{reader} follows this now: delete its line in the table"
    else:
        assert gap is not None, f"arrived: {sorted(arrived)}"


def test_python_itself_agrees_with_the_table(tmp_path: Path) -> None:
    """A row that marks what Python does not do would be followed by a wrong reader only."""
    script = Path(__file__).with_name("run_rows.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "row")],
        input=json.dumps([row.files for row in ROWS]),
        capture_output=True,
        text=True,
        check=True,
    )
    for row, answers in zip(ROWS, json.loads(done.stdout), strict=True):
        lines = {(path, line) for one in answers if isinstance(one, list) for path, line in one}
        assert row.followed(frozenset(lines)), f"{row.id}: {answers}"


def test_the_table_is_large_and_followed() -> None:
    assert len(ROWS) >= 160
    assert len({row.id for row in ROWS}) == len(ROWS)
    for reader in READERS:
        gaps = [row for row in ROWS if reader in dict(row.gaps)]
        assert len(ROWS) - len(gaps) >= FOLLOWED[reader] * len(ROWS)


def test_each_gap_has_a_reason() -> None:
    for row in ROWS:
        for reader, why in row.gaps:
            assert reader in READERS
            assert len(why.split()) > 2, row.id
