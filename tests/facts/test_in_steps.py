"""What is shown is reduced in its steps only where it is made of numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings

PROGRAM = """import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.utils import save_image

net, judge = nn.Linear(8, 4), nn.Linear(4, 1)
adam = torch.optim.Adam([*net.parameters(), *judge.parameters()])
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
for i, (x,) in enumerate(loader):
    noise = torch.Tensor(np.random.normal(0, 1, (x.shape[0], 8)))
    made = net(noise)
    loss = judge(made).mean() - judge(x).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    if i % 10 == 0:
        {shown}
"""


@pytest.mark.parametrize(
    "shown", ["save_image(made.data[:4], 'made.png')", "print(loss.item(), made[:2].mean().item())"]
)
def test_sizes_of_tensors_stay_those_of_the_share(shown: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(shown=shown))
    outcome = migrate([tmp_path / "train.py"], Settings())
    assert not outcome.refusals
    (text,) = (c.after.decode() for c in outcome.changes if c.path == "train.py")
    assert "(0, 1, (x.shape[0], 8))" in text
