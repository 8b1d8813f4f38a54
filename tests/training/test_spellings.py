"""Losses in uncommon words: sums over the whole batch that look like sums along an axis."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.verify.options import Options
from ddpify.verify.run import verify
from tests.projects import migrated, put
from tests.verify.test_hazards import described

pytestmark = [pytest.mark.training, pytest.mark.spread]

PROGRAM = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))

    def forward(self, x):
        return self.body(x)

    def off(self, out, x):
        terms = (out - x).square()
        return terms.view(-1).sum(-1).mean() + terms.view(len(x), -1).sum(1).sum(-1).mean()


def main():
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(48, 6)), batch_size=16)
    coder = Coder()
    optimizer = torch.optim.SGD(coder.parameters(), lr=0.002)
    for epoch in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            out = coder(x)
            loss = coder.off(out, x) + (out - x).abs().flatten().mean(-1).sum()
            loss.backward()
            optimizer.step()
    torch.save(coder.state_dict(), "coder.pt")


if __name__ == "__main__":
    main()
"""


PAIRS = PROGRAM.replace(
    "loss = coder.off(out, x) + (out - x).abs().flatten().mean(-1).sum()",
    "loss = F.softplus(out[::2, 0] - out[1::2, 0]).mean() + out.roll(1, 0).mul(x).sum(1).mean()",
)


def test_neighbours_in_a_batch_are_those_of_one_process(tmp_path: Path) -> None:
    original, ranks = put({"train.py": PAIRS}, tmp_path / "original"), tmp_path / "ranks"
    migrated(put({"train.py": PAIRS}, ranks) / "train.py")
    result = verify(Options(ranks / "train.py", baseline=str(original), tolerance=1e-6))
    assert result.passed, described(result)
    assert "split_batches" in (ranks / "train.py").read_text()


def test_what_is_summed_over_the_batch_is_trained_as_a_sum(tmp_path: Path) -> None:
    original, ranks = put({"train.py": PROGRAM}, tmp_path / "original"), tmp_path / "ranks"
    migrated(put({"train.py": PROGRAM}, ranks) / "train.py")
    assert "split_batches" not in (ranks / "train.py").read_text()
    result = verify(Options(ranks / "train.py", baseline=str(original), tolerance=1e-10))
    assert result.passed, described(result)
