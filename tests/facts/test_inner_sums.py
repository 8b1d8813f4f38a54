"""Sums over the batch that a model's own ``forward`` computes in steps, as that of a CRF does.

They are multiplied by the number of ranks, which is right of nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

PROGRAM = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.out = nn.Linear(8, 3)

    def gold(self, scores, tags):
        own = torch.gather(scores, 2, tags.unsqueeze(2)).squeeze(2)
        return torch.sum(own[:, 0]) + torch.sum(own[:, 1:])

    def forward(self, words, tags):
        scores = self.out(self.table(words))
        every = torch.logsumexp(scores, 2)
        return torch.sum(every) - self.gold(scores, tags)


def padded(parts):
    return tuple(nn.utils.rnn.pad_sequence(one, batch_first=True) for one in zip(*parts))


data = TensorDataset(torch.randint(0, 9, (16, 5)), torch.randint(0, 3, (16, 5)))
loader = DataLoader(data, batch_size=4, shuffle=True)
net = Tagger()
descent = torch.optim.SGD(net.parameters(), lr=0.01)
for words, tags in loader:
    loss = net(words, tags)
    descent.zero_grad()
    loss.backward()
    descent.step()
"""
GIVEN = "return torch.sum(every) - self.gold(scores, tags)"
REFUSED = {
    "filled up": ("shuffle=True", "shuffle=True, collate_fn=padded"),
    "with a penalty": (GIVEN, f"{GIVEN} + self.out.weight.pow(2).sum()"),
    "beside a mean": (GIVEN, f"{GIVEN} + every.mean()"),
    "of words that count": (GIVEN, "return (torch.sum(every) - 1) / (words != 0).sum()"),
    "of what is compared": (GIVEN, "return torch.sum(every - every.mean(0))"),
    "its root": (GIVEN, "return torch.sum(every).sqrt()"),
}


def migrated(folder: Path, old: str = "", new: str = "") -> tuple[str, bool]:
    """The program once migrated, with the text changed so; whether it is refused."""
    outcome = migrate([put({"main.py": PROGRAM.replace(old, new)}, folder) / "main.py"], Settings())
    changed = (one.after.decode() for one in outcome.changes if one.path == "main.py")
    return "".join(changed), bool(outcome.refusals)


def test_the_sum_is_scaled(tmp_path: Path) -> None:
    text, refused = migrated(tmp_path)
    assert not refused
    assert "(loss * get_world_size()).backward()" in text


def test_the_sums_of_replicas_are_averaged_as_they_were(tmp_path: Path) -> None:
    text, _ = migrated(tmp_path, "= net(words, tags)", "= nn.DataParallel(net)(words, tags).mean()")
    assert "get_world_size" not in text


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_is_no_sum_over_the_samples(change: tuple[str, str], tmp_path: Path) -> None:
    text, _ = migrated(tmp_path, *change)
    assert "get_world_size" not in text
