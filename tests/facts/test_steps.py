"""Batches that are turned to time first, and taken step by step.

Samples lie along the second axis then, and a step has an entry for each. A wrong "may" trains
something else without a word, so beside each program that may stands the nearest that may not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

PROGRAM = """import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, x, hidden, cell):
        _, (hidden, cell) = self.lstm(x, (hidden, cell))
        return self.out(hidden[0]).squeeze(1), hidden, cell


def criterion(out, y):
    counted = y != 0
    terms = (out[counted] - y[counted]) ** 2
    return torch.mean(terms)


def padded(parts):
    return tuple(nn.utils.rnn.pad_sequence(one, batch_first=True) for one in zip(*parts))


data = TensorDataset(torch.randn(16, 5, 3), torch.randn(16, 5))
loader = DataLoader(data, batch_size=4, shuffle=True)
net = Net()
descent = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    size = x.shape[0]
    x, y = x.permute(1, 0, 2).to(torch.float32), y.permute(1, 0)
    hidden, cell, loss = torch.zeros(1, size, 8), torch.zeros(1, size, 8), torch.zeros(1)
    for t in range(args.steps):
        missing = x[t, :, 0] == 0
        if t > 0 and torch.sum(missing) > 0:
            x[t, missing, 0] = out[missing]
        out, hidden, cell = net(x[t].unsqueeze_(0).clone(), hidden, cell)
        loss += criterion(out, y[t])
    descent.zero_grad()
    loss.backward()
    descent.step()
"""
STORES = "x[t, missing, 0] = out[missing]"
ASKS = "t > 0 and torch.sum(missing) > 0"
MEAN = "return torch.mean(terms)"
TERMS = "(out[counted] - y[counted]) ** 2"

FOLLOWED = {
    "each sample's own": (),
    "where there is one": ((ASKS, "t > 0 and missing.any()"),),
    "always": ((ASKS, "t > 0"),),
    "a number of steps": (("args.steps", "5"),),
}
REFUSED = {
    "as many steps as a batch is long": (("args.steps", "x.size(0)"),),
    "or as it is short": (("args.steps", "min(args.steps, x.size(0))"),),
    "set in the loop": (("    size =", "    args.steps = x.size(1)\n    size ="),),
    "another mask": ((STORES, "x[t, missing, 0] = out[y[t] == 0]"),),
    "another order": ((STORES, "x[t, missing, 0] = out.flip(0)[missing]"),),
    "of all samples": ((STORES, "x[t, missing, 0] = out.mean()"),),
    "of the first": ((STORES, "x[:, 0, 0] = out[0]"),),
    "places": (("x[t, :, 0] == 0", "y[t].long().abs()"),),
    "where there are two": (("torch.sum(missing) > 0", "torch.sum(missing) > 1"),),
    "or where there is one": ((ASKS, "t > 1 or torch.sum(missing) > 0"),),
    "one sample of all steps": (("y[t])", "y[:, t])"),),
    "an output's axis": ((TERMS, "(out - y).pow(2).mean(1)"), (MEAN, "return terms.sum()")),
    "filled up": (
        ("shuffle=True", "shuffle=True, collate_fn=padded"),
        (TERMS, "(out - y) ** 2"),
        ("args.steps", "x.size(0)"),
    ),
}


def migrated(changes: tuple[tuple[str, str], ...], folder: Path) -> tuple[str, list[str]]:
    """The program once migrated with the text changed so, and why it is refused."""
    text = PROGRAM
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    outcome = migrate([put({"main.py": text}, folder) / "main.py"], Settings())
    changed = (one for one in outcome.changes if one.path == "main.py")
    written = "".join(one.after.decode() for one in changed)
    return written, [refusal.message for refusal in outcome.refusals]


@pytest.mark.parametrize("changes", FOLLOWED.values(), ids=FOLLOWED)
def test_steps_have_an_entry_for_each_sample(
    changes: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    text, refused = migrated(changes, tmp_path)
    assert not refused
    assert "return global_mean(torch.mean(terms), terms.numel())" in text


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_what_is_not_of_each_sample_alone(
    changes: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    assert migrated(changes, tmp_path)[1]
