"""``debug = False`` at the top of a function is a setting: of ``if debug:`` both ways are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings

PROGRAM = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

def main():
    debug = False{again}
    if debug:
        writer = SummaryWriter("debug")
    else:
        writer = SummaryWriter("run")
    net = nn.Linear(4, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
    for epoch in range(3):
        for (x,) in loader:
            loss = net(x).mean()
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        writer.add_scalar("epoch", epoch, epoch)

main()
"""


@pytest.mark.parametrize(("again", "guarded"), [("", 2), ("\n    debug = True", 1)])
def test_what_is_bound_once_may_be_otherwise(again: str, guarded: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(again=again))
    outcome = migrate([tmp_path / "train.py"], Settings())
    (text,) = (c.after.decode() for c in outcome.changes if c.path == "train.py")
    assert text.count("else NullWriter()") == guarded
