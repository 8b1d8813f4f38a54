"""The fixture without a loader and without an optimizer: `batchify`, carried states, steps by hand.

`ddpify verify` counts the steps of optimizers, so the numbers that it prints are compared here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.projects import migrated, put_fixture
from tests.support.torchrun import torchrun

pytestmark = [pytest.mark.training, pytest.mark.thorough]
ARGUMENTS = "--epochs=2 --emsize=16 --nhid=16 --dropout=0 --batch_size=20 --log-interval=4".split()
LOSS = re.compile(r"loss\s+(\d+\.\d+)")


@pytest.mark.parametrize(("model", "rate"), [("LSTM", "20"), ("GRU", "5"), ("Transformer", "5")])
def test_columns_on_four_ranks_learn_what_they_learn_in_one_process(
    model: str, rate: str, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    script = put_fixture("language_model", folder)
    subprocess.run([sys.executable, "make_data.py"], cwd=folder, check=True, capture_output=True)
    for name, size in (("train", 40_000), ("valid", 5_000), ("test", 5_000)):
        text = folder / "data" / "pydoc" / f"{name}.txt"
        text.write_text(text.read_text()[:size])
    arguments = [*ARGUMENTS, f"--model={model}", f"--lr={rate}"]
    command = [sys.executable, script.name, *arguments]
    one = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    migrated(script)
    four = torchrun(script, 4, *arguments, cwd=folder)
    assert four.returncode == 0, four.stderr
    expected, found = LOSS.findall(one.stdout), LOSS.findall(four.rank_stdout[0])
    assert len(expected) >= 5
    assert [float(x) for x in found] == pytest.approx([float(x) for x in expected], rel=2e-4)
