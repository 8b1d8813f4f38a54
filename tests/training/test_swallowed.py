"""An error of one rank that the script passes over ends the job of several ranks, with its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import migrated, put
from tests.support.torchrun import torchrun

pytestmark = [pytest.mark.training, pytest.mark.spread]

TEXT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 2)

    def forward(self, x):
        if x.max() > 99:
            raise RuntimeError("CUDA out of memory")
        return self.body(x)


def evaluate(net, loader):
    try:
        total = 0.0
        with torch.no_grad():
            for x, y in loader:
                total += nn.functional.cross_entropy(net(x), y).item()
        return total / len(loader)
    except RuntimeError:
        return float("inf")


torch.manual_seed(0)
rows = torch.randn(32, 4)
rows[9] = 100.0  # the second rank's
loader = DataLoader(TensorDataset(rows, torch.arange(32) % 2), batch_size=8)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        try:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
        except RuntimeError as error:
            if "out of memory" in str(error):
                print("skipped a batch")
            else:
                raise
    print(epoch, evaluate(net, loader))
"""


def test_a_rank_does_not_go_on_alone(tmp_path: Path) -> None:
    put({"train.py": TEXT}, tmp_path)
    migrated(tmp_path / "train.py")
    text = (tmp_path / "train.py").read_text()
    assert text.count("raise  # other ranks would wait for this one") == 2
    alone = torchrun("train.py", 1, cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout.count("skipped a batch") == 2
    several = torchrun("train.py", 2, cwd=tmp_path, timeout=60)
    assert several.returncode != 0
    assert "CUDA out of memory" in several.rank_stderr[1]
