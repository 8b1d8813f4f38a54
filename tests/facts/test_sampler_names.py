"""Samplers and data sets get the names a person would give them: no second where one will do."""

from __future__ import annotations

from pathlib import Path

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

SCRIPT = """\
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def rows():
    return TensorDataset(torch.randn(64, 4))


if sys.argv[1] == "small":
    train_loader = DataLoader(rows(), batch_size=8, shuffle=True)
else:
    train_set = rows()
    train_sampler = None
    train_loader = DataLoader(
        train_set, batch_size=8, shuffle=(train_sampler is None), sampler=train_sampler
    )
loader2 = DataLoader(rows(), batch_size=8, shuffle=True)
loader3 = DataLoader(rows(), batch_size=8, shuffle=True)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for (x,), (y,), (z,) in zip(train_loader, loader2, loader3):
        optimizer.zero_grad()
        net(x + y + z).mean().backward()
        optimizer.step()
"""


def test_arms_share_a_name_neighbours_do_not_and_none_gives_way(tmp_path: Path) -> None:
    outcome = migrate([put({"main.py": SCRIPT}, tmp_path) / "main.py"], Settings())
    assert not outcome.refusals
    after = next(c.after.decode() for c in outcome.changes if c.path == "main.py")
    made = [line.strip() for line in after.splitlines() if "= distributed_sampler(" in line]
    assert made == [
        "train_sampler = distributed_sampler(train_dataset, shuffle=True)",
        "train_sampler = distributed_sampler(train_set, shuffle=True)",
        "train_sampler2 = distributed_sampler(train_dataset2, shuffle=True)",
        "train_sampler3 = distributed_sampler(train_dataset3, shuffle=True)",
    ]
    assert "sampler = None" not in after
