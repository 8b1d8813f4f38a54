"""`ddpify migrate FOLDER` finds the scripts that train, and leaves the others as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify import cli
from tests.projects import put

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    data = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
PREDICT = """\
import torch
from torch import nn

if __name__ == "__main__":
    x = torch.randn(1, 5, requires_grad=True)
    nn.Linear(5, 1)(x).sum().backward()
    print(x.grad)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return put({"train.py": TRAIN, "again.py": TRAIN, "predict.py": PREDICT}, tmp_path)


def test_all_scripts_that_train_are_migrated(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["migrate", str(project), "--inplace"]) == cli.CLEAN
    assert "predict.py:1: does not train: left as it is" in capsys.readouterr().out
    assert (project / "predict.py").read_text() == PREDICT
    for name in ("train.py", "again.py"):
        assert "setup_distributed()" in (project / name).read_text()


def test_a_script_that_is_named_must_train(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = project / "predict.py"
    assert cli.main(["migrate", str(script)]) == cli.FAILED
    assert "predict.py: no training loop found" in capsys.readouterr().err
