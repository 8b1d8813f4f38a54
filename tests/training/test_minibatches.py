"""Batches that a generator of the project slices of what it has shuffled: the same training."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.settings import Settings
from tests.training.alike import train_alike

pytestmark = [pytest.mark.training, pytest.mark.spread]

# Pairs of likes and dislikes that are drawn in each epoch; three tensors of two widths.
PROGRAM = """
import numpy as np
import torch
from torch import nn


def minibatch(*tensors, **options):
    size = options.get("batch_size", 128)
    if len(tensors) == 1:
        tensor = tensors[0]
        for i in range(0, len(tensor), size):
            yield tensor[i : i + size]
    else:
        for i in range(0, len(tensors[0]), size):
            yield tuple(x[i : i + size] for x in tensors)


def shuffle(*arrays):
    order = np.arange(len(arrays[0]))
    np.random.shuffle(order)
    return arrays[0][order] if len(arrays) == 1 else tuple(x[order] for x in arrays)


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.people, self.things = nn.Embedding(20, 8), nn.Embedding(30, 8)

    def forward(self, person, things):
        return torch.bmm(self.things(things), self.people(person).unsqueeze(2)).squeeze()


class Shop:
    def __init__(self):
        self.net = None

    def open(self):
        self.net = Scores()
        self.adam = torch.optim.Adam(self.net.parameters(), lr=0.01)

    def fit(self, people, likes):
        if self.net is None:
            self.open()
        for epoch in range(3):
            people, likes = shuffle(people, likes)
            others = np.random.randint(0, 30, (len(people), 2))
            p, l, o = torch.from_numpy(people), torch.from_numpy(likes), torch.from_numpy(others)
            p, l, o = p.long(), l.long(), o.long()
            total = 0.0
            for number, (person, good, bad) in enumerate(minibatch(p, l, o, batch_size=16)):
                both = torch.cat((good, bad), 1)
                scores = self.net(person, both)
                liked, other = torch.split(scores, [good.size(1), bad.size(1)], dim=1)
                self.adam.zero_grad()
                loss = -torch.sigmoid(liked).log().mean() - (1 - torch.sigmoid(other)).log().mean()
                loss.backward()
                self.adam.step()
                total += loss.item()
            total /= number + 1
            print("epoch %d loss %.9f" % (epoch, total))
        torch.save(self.net.state_dict(), "net.pt")


np.random.seed(1)
torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
Shop().fit(np.random.randint(0, 20, 96), np.random.randint(0, 30, (96, 3)))
"""


def test_ranks_train_what_one_process_trains(tmp_path: Path) -> None:
    assert "bad, good, person, both = own_share(" in train_alike(PROGRAM, tmp_path, Settings())
