"""Files that are closed by hand, below the block that opens them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.examples import SINGLE, changed
from tests.projects import migrated, put_example

LINE = '        print("round", round_, "accuracy", accuracy(net, holdout))\n'
BLOCK = '        with open("log.txt", "a") as log:\n            log.write(str(round_))\n'


def written(folder: Path, *changes: tuple[str, str]) -> str:
    put_example(changed(SINGLE, *changes), folder)
    migrated(folder / "main.py")
    return (folder / "main.py").read_text()


@pytest.mark.parametrize(
    ("after", "stands"),
    [
        pytest.param("        log.close()\n", "NullWriter() as log:", id="closed"),
        pytest.param("", "    if is_main_process():\n            with open", id="left alone"),
        pytest.param(BLOCK, "    if is_main_process():\n            with open", id="opened anew"),
    ],
)
def test_a_file_that_is_asked_below_its_block(after: str, stands: str, tmp_path: Path) -> None:
    assert stands in written(tmp_path, (LINE, f"{BLOCK}{after}"))
