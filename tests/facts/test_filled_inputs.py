"""Models that look along what was filled up: a rank's batch is filled to the longest of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

PROGRAM = """\
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from texts import Texts


def collate(samples):
    texts, labels = zip(*samples)
    return pad_sequence(texts, batch_first=True), torch.tensor(labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.pool = nn.AdaptiveAvgPool1d(1)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        h = self.embedding(x)
        {body}


loader = DataLoader(Texts(), batch_size=8, collate_fn=collate)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
TEXTS = """\
import torch
from torch.utils.data import Dataset


class Texts(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        return torch.full((2 + i % 7,), 3), i % 5
"""


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ("return self.out(h.mean(1))", True),
        ("return self.out(torch.max(h, dim=1)[0])", True),
        ("return self.out(self.rnn(h)[0][:, -1])", True),
        ("_, h = self.rnn(h)\n        return self.out(h[-1])", True),
        ("return self.out(self.pool(h.transpose(1, 2)).squeeze(2))", True),
        ("return self.out(h[:, 0])", False),
        ("m = (x != 0).unsqueeze(-1)\n        return self.out((h * m).mean(1))", False),
    ],
)
def test_a_model_that_sees_the_filling_needs_whole_batches(
    body: str, refused: bool, tmp_path: Path
) -> None:
    entry = put({"train.py": PROGRAM.format(body=body), "texts.py": TEXTS}, tmp_path) / "train.py"
    assert bool(migrate([entry], Settings(whole_batches=False)).refusals) is refused
    assert not migrate([entry], Settings()).refusals
