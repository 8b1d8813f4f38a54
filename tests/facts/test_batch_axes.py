"""What says along which axis a batch of no loader holds its samples, and what says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.link import analyze
from ddpify.pipeline import migrate
from ddpify.project import Project
from ddpify.settings import Settings
from tests.projects import put

PROGRAM = """import random
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from elsewhere import corpus, Own

points, kinds, size = corpus()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 12)
        self.conv = nn.Conv1d(12, 4, 3)
        self.steps = nn.LSTM(12, 4)
        self.rows = nn.GRU(12, 4, batch_first=True)
        self.attends = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 2), 1)
        self.near = nn.TransformerEncoderLayer(12, 2, batch_first=True)
        self.out = nn.Linear(12, 3)
        self.each = nn.Sequential(nn.Tanh(), nn.LogSoftmax(dim=1))
        self.all = nn.Sequential(nn.Tanh(), nn.LogSoftmax(dim=0))
        self.own = Own()

    def forward(self, x):
        FORWARD


def taken(start):
    order = np.random.permutation(len(points))
    here = order[start : start + 32]
    return points[here], kinds[here]


def passes(source, targets):
    order = torch.randperm(len(source))
    for start in range(0, 960, 32):
        yield source[order[start : start + 32]], targets[order[start : start + 32]]


net = Net()
descent = torch.optim.SGD(net.parameters(), lr=0.1)
for turn in range(5):
    order = list(range(960))
    random.shuffle(order)
    for i in range(0, 960, 32):
        BATCH
        out = net(x)
        loss = LOSS
        descent.zero_grad()
        loss.backward()
        descent.step()
"""
SLICES = "x = points[i : i + 32]\ny = kinds[i : i + 32]"
OPEN = "return self.own(x)"
LOSS = "F.cross_entropy(out, y)"

BY_LAYERS = {
    "a transformer": ("return self.attends(self.table(x))", 1),
    "batch-first": ("return self.near(self.table(x))", 0),
    "with-positions": ("h = self.table(x) + self.pe[: x.size(0)]\nreturn self.attends(h)", 1),
    "with-another-input": ("h = self.table(x) + self.table(x.t())\nreturn self.attends(h)", None),
    "conv": ("return self.own(self.conv(x))", 0),
    "conv-behind-a-table": (
        "h = self.table(x).permute(0, 2, 1)\nreturn self.own(F.relu(self.conv(h)))",
        0,
    ),
    "flattened": ("x = x.view(x.size(0), -1)\nreturn self.own(x)", 0),
    "flattened-by-torch": ("return self.own(torch.flatten(x, 1))", 0),
    "rows-first": ("h, _ = self.rows(self.table(x))\nreturn self.own(h)", 0),
    "steps-first": ("h = self.table(x)\nh, _ = self.steps(h)\nreturn self.own(h)", 1),
    "row-by-row": ("return self.out(F.relu(self.table(x)))", 0),
    "turned": ("h, _ = self.steps(self.table(x).permute(1, 0, 2))\nreturn self.own(h)", 0),
    "bound-again": ("x = self.own(x)\nreturn self.conv(x)", None),
    "bound-in-a-branch": ("if size:\n    x = x.t()\nreturn self.conv(x)", None),
    "nobody-knows": (OPEN, None),
    "softmax": ("return self.each(self.out(x))", 0),
    "softmax-along-the-first": ("return self.all(self.out(x))", None),
    "last-step": ("return self.out(x)[-1]", None),
    "mean-over-the-first": ("return self.out(x).mean(0)", None),
}
BY_ORDER = {
    "permutation": ("p = torch.randperm(960)\nx = points[p[i : i + 32]]\ny = kinds[i : i + 32]", 0),
    "shuffled": ("x = torch.tensor(points[order[i : i + 32]])\ny = kinds[i : i + 32]", 0),
    "choice": ("n = np.random.choice(960, 32)\nx, y = points[n], kinds[n]", 0),
    "picked": (
        "p = random.sample(points, 32)\nx = torch.stack([one[0] for one in p])\n"
        "y = kinds[i : i + 32]",
        0,
    ),
    "stacked": (
        "at = torch.randint(900, (32,))\nx = torch.stack([points[k : k + 9] for k in at])\n"
        "y = torch.stack([kinds[k : k + 9] for k in at])\nx, y = x.cuda(), y.cuda()",
        0,
    ),
    "by-a-function": ("x, y = taken(i)", 0),
    "slices": (SLICES, None),
    "one-drawn": ("k = random.randrange(960)\nx, y = points[k], kinds[k]", None),
    "drawn-steps": ("k = np.random.randint(9)\nx, y = points[k : k + 32], kinds[k : k + 32]", None),
    "numbers": ("x = torch.randint(9, (32, 12))\ny = kinds[i : i + 32]", None),
    "table-of-draws": ("k = torch.randint(9, (7, 32))\nx, y = points[k], kinds[k]", None),
    "stacked-behind": (
        "at = torch.randint(900, (32,))\nx = torch.stack([points[k] for k in at], dim=1)\n"
        "y = kinds[i : i + 32]",
        None,
    ),
    "in-one-branch": (
        "x = points[torch.randperm(32)] if size else points[i : i + 32]\ny = kinds[i : i + 32]",
        None,
    ),
    "noise": ("x = points[i : i + 32] + torch.randn(32, 12)\ny = kinds[i : i + 32]", None),
}


def axis_of(batch: str, forward: str, folder: Path, loss: str = LOSS) -> int | None:
    text = PROGRAM.replace("BATCH", batch.replace("\n", "\n        "))
    text = text.replace("FORWARD", forward.replace("\n", "\n        ")).replace("LOSS", loss)
    facts = analyze(Project.of(put({"main.py": text}, folder) / "main.py"))
    assert facts is not None
    assert facts.divisions or "along which axis" in facts.undivided[0][1]
    return facts.divisions[0].axis if facts.divisions else None


@pytest.mark.parametrize(("forward", "axis"), BY_LAYERS.values(), ids=BY_LAYERS)
def test_layers_say_where_they_take_samples(forward: str, axis: int | None, tmp_path: Path) -> None:
    assert axis_of(SLICES, forward, tmp_path) == axis


@pytest.mark.parametrize(("batch", "axis"), BY_ORDER.values(), ids=BY_ORDER)
def test_what_is_in_a_drawn_order_is_samples(batch: str, axis: int | None, tmp_path: Path) -> None:
    assert axis_of(batch, OPEN, tmp_path) == axis


def test_layers_and_order_that_differ_say_nothing(tmp_path: Path) -> None:
    steps = "h, _ = self.steps(self.table(x))\nreturn self.own(h)"
    assert axis_of("x, y = taken(i)", steps, tmp_path) is None


@pytest.mark.parametrize("loss", ["(out[1:] - x[:-1]).pow(2).mean()", "(out.t() @ x).mean()"])
def test_rows_that_the_loss_tells_apart_are_no_samples(loss: str, tmp_path: Path) -> None:
    assert axis_of(SLICES, "return self.out(x)", tmp_path, loss) is None


TEXT_MODEL = """import torch
from torch import nn
from torch.nn import functional as F

data = torch.load("codes.pt")


def get_batch():
    at = torch.randint(len(data) - 64, (32,))
    x = torch.stack([data[i : i + 64] for i in at])
    y = torch.stack([data[i + 1 : i + 65] for i in at])
    return x.cuda(), y.cuda()


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 100)

    def forward(self, codes, targets=None):
        logits = self.table(codes)
        if targets is None:
            loss = None
        else:
            b, t, c = logits.shape
            logits = logits.view(b * t, c)
            targets = targets.view(b * t)
            loss = F.cross_entropy(logits, targets)
        return logits, loss


model = Pairs()
m = model.cuda()
descent = torch.optim.AdamW(model.parameters())
for step in range(100):
    x, y = get_batch()
    logits, loss = model(x, y)
    descent.zero_grad()
    loss.backward()
    descent.step()
"""


def test_a_model_is_wrapped_by_the_name_it_is_called_by(tmp_path: Path) -> None:
    outcome = migrate([put({"main.py": TEXT_MODEL}, tmp_path) / "main.py"], Settings())
    assert not outcome.refusals
    text = next(change.after for change in outcome.changes if change.path == "main.py").decode()
    assert "\nmodel = wrap_model(model)\n" in text
    assert "    x, y = own_share(x, y)\n    logits, loss = model(x, y)\n" in text
    assert "global_mean" not in text


@pytest.mark.parametrize(
    ("batch", "axis"),
    [(SLICES, 0), ("x = torch.from_numpy(points)\ny = torch.from_numpy(kinds).long()", None)],
    ids=("slices", "all-data-in-each-pass"),
)
def test_all_data_in_each_pass_are_no_batch(batch: str, axis: int | None, tmp_path: Path) -> None:
    assert axis_of(batch, "return self.out(x)", tmp_path) == axis
