"""Whole batches on every rank, which ranks do not load together: verify takes them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.verify.options import Options
from ddpify.verify.run import verify
from tests.projects import migrated, put
from tests.verify.test_hazards import described

pytestmark = [pytest.mark.training, pytest.mark.spread]

# A loss that nobody follows, of pairs in an order that the whole batch gives, and a model whose
# outputs have their samples along the second axis.
TEXT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def stack(samples):
    xs, ys = zip(*samples)
    return torch.stack(xs), torch.stack(ys)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(8, 4)

    def forward(self, x):
        steps, (last, _) = self.body(x.permute(1, 0, 2))
        return steps, last


def compare(steps, last):
    rows = steps.square().sum(0) + last[0]
    rows = rows[torch.argsort(rows.norm(dim=1))]
    return (rows[1:] - rows[:-1]).square().sum() / rows.std().clamp(min=0.1)


torch.manual_seed(0)
net = Net()
data = TensorDataset(torch.randn(64, 5, 8), torch.randn(64))
loader = DataLoader(data, 16, shuffle=True, collate_fn=stack)
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.01, max_iter=2)
for epoch in range(2):
    total = 0.0
    for x, y in loader:

        def closure():
            optimizer.zero_grad()
            loss = compare(*net(x))
            loss.backward()
            return loss

        total += optimizer.step(closure).item()
    print(f"epoch {epoch} loss {total / len(loader):.9f}")
torch.save(net.state_dict(), "net.pt")
"""


def test_verify_knows_batches_that_each_rank_makes_whole(tmp_path: Path) -> None:
    original = put({"train.py": TEXT}, tmp_path / "original")
    ranks = put({"train.py": TEXT}, tmp_path / "ranks")
    migrated(ranks / "train.py")
    text = (ranks / "train.py").read_text()
    assert "split_batches(" in text
    assert "share_loading" not in text
    result = verify(Options(ranks / "train.py", baseline=str(original), tolerance=1e-8))
    assert result.passed, described(result)
