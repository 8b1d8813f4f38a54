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


def test_what_a_block_keeps_in_options_may_be_read_anywhere(tmp_path: Path) -> None:
    block = BLOCK.replace("log.write(str(round_))", "opt.log = str(round_)")
    assert "NullWriter() as log:" in written(tmp_path, (LINE, block))


@pytest.mark.parametrize(
    ("after", "stands"),
    [
        pytest.param(
            "", "            if is_main_process():\n                with open", id="alone"
        ),
        pytest.param("            print(self.rows)\n", "NullWriter() as log:", id="asked below"),
        pytest.param("            vars(self)\n", "NullWriter() as log:", id="asked by no name"),
    ],
)
def test_what_a_block_keeps_in_self(after: str, stands: str, tmp_path: Path) -> None:
    diary = (
        "import torch\n\n\nclass Diary:\n    def note(self, number):\n        for _ in range(1):\n"
        '            with open("log.txt", "a") as log:\n'
        "                self.rows = csv.writer(log)\n"
        f"                self.rows.writerow([number])\n{after}"
    )
    text = written(
        tmp_path,
        ("import argparse\n", "import argparse\nimport csv\n"),
        ("import torch\n", diary),
        (LINE, "        Diary().note(round_)\n"),
    )
    assert stands in text
