"""Losses that compare the samples of a batch: ranks compute them of the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.verify.options import Options
from ddpify.verify.run import verify
from tests.projects import migrated, put
from tests.training.test_counts import said
from tests.verify.test_hazards import described

pytestmark = [pytest.mark.training, pytest.mark.spread]

PROGRAM = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Meter:
    def __init__(self):
        self.sum = self.count = self.avg = self.val = 0

    def update(self, value, count):
        self.val = value
        self.sum += value * count
        self.count += count
        self.avg = self.sum / self.count

{definitions}

def main():
    torch.manual_seed(0)
    batch_size = 16
    data = TensorDataset(torch.randn(48, 6), torch.randint(0, 3, (48,)))
    loader = DataLoader(data, batch_size=batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    share = 0.5
    for epoch in range(2):
        losses = Meter()
        for step, (x, y) in enumerate(loader):
{loss}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
{after}
            print(f"epoch {{epoch}} step {{step}} loss {{loss.item():.9f}}")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
"""
SUPERVISED_CONTRASTIVE = (
    """
class Contrastive(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, features, labels):
        count = features.shape[1]
        rows = torch.cat(torch.unbind(features, dim=1), dim=0)
        alike = torch.div(torch.matmul(rows, rows.T), self.temperature)
        labels = labels.view(-1, 1)
        same = torch.eq(labels, labels.T).float().repeat(count, count)
        others = 1 - torch.eye(len(rows))
        logs = alike - torch.log((torch.exp(alike) * others).sum(1, keepdim=True))
        same = same * others
        return -((same * logs).sum(1) / same.sum(1)).mean()

""",
    """
            features = F.normalize(model(torch.cat([x, x + 0.1], dim=0)), dim=1)
            size = y.shape[0]
            first, second = torch.split(features, [size, size], dim=0)
            features = torch.cat([first.unsqueeze(1), second.unsqueeze(1)], dim=1)
            loss = Contrastive()(features, y)
""",
    "",
    "loss = Contrastive()(whole_batch(features), whole_batch(y))",
)
DICE = (
    """
def dice_loss(guess, truth):
    shared = 2 * (guess.flatten(0, 1) * truth.flatten(0, 1)).sum()
    total = guess.flatten(0, 1).sum() + truth.flatten(0, 1).sum()
    return 1 - (shared + 1e-6) / (total + 1e-6)

""",
    """
            out = model(x.view(batch_size, -1))
            loss = F.cross_entropy(out, y)
            loss += dice_loss(F.softmax(out, dim=1), F.one_hot(y, 3).float())
""",
    "",
    "whole_batch(F.softmax(out, dim=1)), whole_batch(F.one_hot(y, 3).float())",
)
RELATIVISTIC = (
    "",
    """
            real, fake = model(x), model(-x)
            ahead = F.binary_cross_entropy_with_logits(
                real - fake.mean(0, keepdim=True), torch.ones(real.size(0), 3)
            )
            loss = ahead + share * fake.square().mean() + torch.sqrt(F.mse_loss(fake, x[:, :3]))
""",
    "            share = min(max(share + 0.1 * loss.item(), 0), 1)",
    "real - whole_batch(fake).mean(0, keepdim=True)",
)
PULLED_APART = (
    """
def apart(rows):
    unit = rows / torch.sqrt(torch.sum(rows**2, -1, keepdim=True))
    alike = torch.matmul(unit, unit.transpose(1, 0))
    size = rows.size(0)
    return (torch.sum(alike) - size) / (size * (size - 1))

""",
    """
            out, off = model(x), model(x.square()).square().mean()
            loss = F.cross_entropy(out, y) + 0.1 * apart(out)
            if (0.2 - off.data).item() > 0:
                loss += 0.2 - off
""",
    "",
    "+ 0.1 * apart(whole_batch(out)) if reduce_mean((0.2 - off.data).item()) > 0:",
)
# A mean of such losses is that of all samples: each is one of the whole batch already.
METERED = (
    """
class Focal(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, out, y):
        each = F.cross_entropy(out, y, reduction="none", weight=self.weight)
        return ((1 - torch.exp(-each)) * each / (y.sum() + 1)).sum()

""",
    """
            loss = Focal(torch.tensor([0.2, 0.3, 0.5]))(model(x), y)
            losses.update(loss.item(), y.size(0))
""",
    """
            if step % 2 == 0:
                print("so far {m.val:.9f} ({m.avg:.9f})".format(m=losses))
""".strip("\n"),
    "global_losses = global_meter(losses)",
)


@pytest.mark.parametrize(
    ("definitions", "loss", "after", "fix"),
    [
        pytest.param(*SUPERVISED_CONTRASTIVE, id="contrastive"),
        pytest.param(*METERED, id="shown-by-a-meter"),
        pytest.param(*DICE, id="dice", marks=pytest.mark.thorough),
        pytest.param(
            *RELATIVISTIC, id="relativistic-root-and-fed-back", marks=pytest.mark.thorough
        ),
        pytest.param(*PULLED_APART, id="apart-and-a-margin", marks=pytest.mark.thorough),
    ],
)
def test_ranks_train_on_the_loss_of_the_whole_batch(
    definitions: str,
    loss: str,
    after: str,
    fix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = {
        "train.py": PROGRAM.format(definitions=definitions, loss=loss.strip("\n"), after=after)
    }
    original, ranks = put(program, tmp_path / "original"), tmp_path / "ranks"
    migrated(put(program, ranks) / "train.py")
    lines = " ".join((ranks / "train.py").read_text().split())  # a long one is broken up
    assert fix in lines.replace("( ", "(").replace(", )", ")")
    result = verify(Options(ranks / "train.py", baseline=str(original), tolerance=1e-10))
    assert result.passed, described(result)
    assert said(ranks, monkeypatch) == said(original, monkeypatch), "in one process"
