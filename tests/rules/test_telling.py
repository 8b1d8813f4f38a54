"""Where a loader is found that has to be told the epoch."""

from __future__ import annotations

from pathlib import Path

from ddpify.pipeline import migrate
from ddpify.settings import Settings

PROGRAM = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4))
loaders = {
    "train": DataLoader(data, batch_size=8, shuffle=True),
    "test": DataLoader(data, batch_size=8),
}
net = nn.Linear(4, 1)


def learn(batches, sgd):
    for (x,) in batches:
        loss = net(x).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()


def main():
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(3):
        learn(loaders["train"], sgd)


main()
"""


def test_an_entry_of_a_modules_dict_is_told_in_a_function(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    outcome = migrate([tmp_path / "train.py"], Settings())
    (text,) = (c.after.decode() for c in outcome.changes if c.path == "train.py")
    assert '        begin_epoch(loaders["train"], epoch)\n        learn(' in text
