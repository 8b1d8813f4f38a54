"""Losses that go by the order of a batch are not computed of rows that lie rank after rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

PROGRAM = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def own(out, y):
    {body}
    return F.softplus(made).amax()


loader = DataLoader(TensorDataset(torch.randn(48, 4), torch.randn(48, 1)), batch_size=8, {how})
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = own(model(x), y)
        loss.backward()
        optimizer.step()
"""


def _is_gathered(body: str, how: str, folder: Path) -> bool:
    files = {"train.py": PROGRAM.format(body=body, how=how)}
    settings = Settings(whole_batches=False)
    outcome = migrate([put(files, folder) / "train.py"], settings)
    texts = [change.after.decode() for change in outcome.changes if change.path == "train.py"]
    return any("whole_batch(" in text for text in texts)


@pytest.mark.parametrize(
    ("body", "ordered"),
    [
        ("made = out - y", False),
        ("made = out[:, 1:] - out[:, :1]", False),
        ("made = out.flip(1) - y", False),
        ("made = out.view(len(out), 2, 2)", False),
        ("made = out.chunk(2, dim=1)[0] + out.chunk(2, 1)[1]", False),
        ("made = out[::2] - out[1::2]", True),
        ("made = out[::2, 0] - out[1::2, 0]", True),
        ("made = out[0] - out", True),
        ("made = out - out.flip(0)", True),
        ("made = out - out.roll(1, dims=0)", True),
        ("first, rest = out.chunk(2)\n    made = first - rest", True),
        ("made = out.cumsum(0)", True),
        ("made = out.view(4, -1)", True),
    ],
)
def test_an_order_counts_where_nothing_shuffles(body: str, ordered: bool, tmp_path: Path) -> None:
    assert _is_gathered(body, "shuffle=True", tmp_path / "shuffled")
    assert _is_gathered(body, "shuffle=False", tmp_path / "in_order") is not ordered
