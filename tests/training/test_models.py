"""Models of which a step leaves out parts: ranks train what one process does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.settings import Settings
from tests.training.alike import train_alike

pytestmark = [pytest.mark.training, pytest.mark.spread]

# The last of `others` and one of `graphs` get no gradient, and DDP raises without the flag.
PASSED_BY = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


class Waves(nn.Module):
    def __init__(self, graph=False):
        super().__init__()
        self.graph = graph
        self.skips = nn.ModuleList()
        self.others = nn.ModuleList()
        self.graphs = nn.ModuleList()
        for _ in range(3):
            self.skips.append(nn.Linear(6, 6))
            self.others.append(nn.Linear(6, 6))
            self.graphs.append(nn.Linear(6, 6))

    def forward(self, x):
        skip = x
        for i in range(3):
            skip = skip + torch.tanh(self.skips[i](x))
            x = self.graphs[i](x) if self.graph else self.others[i](x)
        return skip


net = Waves()
rows = DataLoader(TensorDataset(torch.randn(40, 6), torch.randn(40, 6)), 8)
descent = torch.optim.SGD(net.parameters(), lr=0.1)
for turn in range(2):
    for signal, wanted in rows:
        descent.zero_grad()
        loss = LOSS
        loss.backward()
        descent.step()
        print(f"loss {loss.item():.9f}")
torch.save(net.state_dict(), "net.pt")
"""
SHARES = "(net(signal) - wanted).square().mean()"
WHOLE = "((net(signal) - wanted).std() + (net(signal).sum(0) * wanted.sum(0)).tanh().std())"


@pytest.mark.parametrize("loss", [SHARES, WHOLE], ids=["shares", "whole"])
def test_parts_that_a_forward_passes_by_end_no_job(loss: str, tmp_path: Path) -> None:
    after = train_alike(PASSED_BY.replace("LOSS", loss), tmp_path, Settings())
    assert "find_unused_parameters=True)" in after
    assert ("split_batches(" in after) == (loss is WHOLE)
