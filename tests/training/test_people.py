"""Numbers that people read: what two ranks print and write is what one process did."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.verify.options import Options
from ddpify.verify.run import verify
from tests.projects import migrated, put
from tests.verify.test_hazards import described

pytestmark = [pytest.mark.training, pytest.mark.spread]

METERS = """
class Meter:
    def __init__(self, name):
        self.name, self.val, self.avg, self.sum, self.count = name, 0, 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return "{name} {val:.9f} ({avg:.9f})".format(**self.__dict__)


class Progress:
    def __init__(self, meters, prefix):
        self.meters, self.prefix = meters, prefix

    def display(self, batch):
        entries = [self.prefix + str(batch)]
        entries += [str(meter) for meter in self.meters]
        print("\\t".join(entries))
"""
MAIN = """
import csv

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from meters import Meter, Progress

OPTIONS = {"batch_size": 16, "shuffle": True}


def fit(loader, model, optimizer, epoch):
    losses, hits = Meter("loss"), Meter("hits")
    named = {"loss": losses, "hits": hits}
    progress = Progress([losses, hits], f"epoch {epoch} ")
    model.train()
    for i, (x, y) in enumerate(loader):
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), len(x))
        hits.update((out.argmax(1) == y).float().mean().item(), len(x))
        if i % 2 == 0:
            progress.display(i)
            print(", ".join(f"{name}: {meter.avg:.9f}" for name, meter in named.items()))
            parts = [f"step {i}"]
            parts.append("loss %.9f" % losses.val)
            parts.append("hits %.9f" % hits.avg)
            print(" | ".join(parts))
    return {name: meter.avg for name, meter in named.items()}


def evaluate(loader, model):
    losses = Meter("loss")
    progress = Progress([losses], "test ")
    model.eval()
    with torch.no_grad():
        for i, (x, y) in enumerate(loader):
            losses.update(F.cross_entropy(model(x), y).item())
            if i % 2 == 0:
                progress.display(i)
    return losses.avg


def main():
    torch.manual_seed(0)
    x = torch.randn(136, 8)
    y = (x[:, 0] > 0).long()
    train_loader = DataLoader(TensorDataset(x[:96], y[:96]), **OPTIONS)
    test_loader = DataLoader(TensorDataset(x[96:], y[96:]), **dict(OPTIONS, shuffle=False))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        stats = fit(train_loader, model, optimizer, epoch)
        print(" ".join("%s=%.9f" % pair for pair in stats.items()))
        row = [epoch, f"{evaluate(test_loader, model):.9f}"]
        with open("log.csv", "a") as file:
            csv.writer(file).writerow(row)
            file.close()


if __name__ == "__main__":
    main()
"""


def test_meters_in_lists_and_dicts_by_their_texts(tmp_path: Path) -> None:
    files = {"meters.py": METERS, "train.py": MAIN}
    original, ranks = put(files, tmp_path / "original"), tmp_path / "ranks"
    migrated(put(files, ranks) / "train.py")
    assert "share_loading" not in (ranks / "train.py").read_text()
    result = verify(Options(ranks / "train.py", baseline=str(original), tolerance=1e-10))
    assert result.passed, described(result)
