"""Losses that divide by how many samples count, which differs between the ranks.

In each program rank 1 has none of them in some batch: DistributedSampler without shuffling gives
it the odd samples, and those of the first batch do not count.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpify.verify.options import Options
from ddpify.verify.run import verify
from tests.projects import migrated, put
from tests.verify.test_hazards import described

pytestmark = [pytest.mark.training, pytest.mark.spread]


@dataclass(frozen=True)
class Program:
    """``fixes`` are the lines that have to be there after the migration, by file."""

    files: dict[str, str]
    fixes: dict[str, str]


TAGGER = Program(
    {"train.py": """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self, words=20, tags=5):
        super().__init__()
        self.embedding = nn.Embedding(words, 8)
        self.out = nn.Linear(8, tags)

    def forward(self, tokens):
        return self.out(torch.tanh(self.embedding(tokens)))


def main():
    torch.manual_seed(0)
    tokens = torch.randint(1, 20, (48, 6))
    tags = tokens % 5
    lengths = torch.randint(1, 7, (48,))
    lengths[1:16:2] = 0
    mask = torch.arange(6) < lengths[:, None]
    loader = DataLoader(TensorDataset(tokens, tags, mask), batch_size=16)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(2):
        total, seen = 0.0, 0
        for tokens, tags, mask in loader:
            scores = model(tokens)
            loss = F.cross_entropy(scores.transpose(1, 2), tags, reduction="none")
            loss = (loss * mask).sum() / mask.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(tokens)
            seen += len(tokens)
        print(f"epoch {epoch} loss {total / seen:.9f}")
    torch.save(model.state_dict(), "tagger.pt")


if __name__ == "__main__":
    main()
"""},
    {"train.py": "loss = (loss * mask).sum() / per_rank_count(mask.sum())"},
)

# The second batch has no positive at all: the count is one, as the criterion says.
DETECTOR = Program(
    {
        "criterion.py": """
import torch.nn.functional as F
from torch import nn


class DetectionLoss(nn.Module):
    def __init__(self, box_weight=2.0):
        super().__init__()
        self.box_weight = box_weight

    def forward(self, outputs, labels, boxes):
        logits, offsets = outputs
        positive = labels > 0
        num_pos = max(int(positive.sum()), 1)
        cls_loss = F.binary_cross_entropy_with_logits(
            logits, positive.to(logits), reduction="none"
        ).sum() / num_pos
        box_loss = F.smooth_l1_loss(offsets[positive], boxes[positive], reduction="sum") / num_pos
        return cls_loss + self.box_weight * box_loss, {"cls": cls_loss, "box": box_loss}
""",
        "train.py": """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from criterion import DetectionLoss


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 12)
        self.cls, self.box = nn.Linear(12, 10), nn.Linear(12, 40)

    def forward(self, x):
        x = torch.relu(self.body(x))
        return self.cls(x), self.box(x).view(-1, 10, 4)


def train_epoch(model, loader, criterion, optimizer):
    running = 0.0
    for images, labels, boxes in loader:
        loss, parts = criterion(model(images), labels, boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        print(f"cls {parts['cls'].item():.9f} box {parts['box'].item():.9f}")
    return running / len(loader)


def main():
    torch.manual_seed(0)
    labels = torch.randint(0, 3, (48, 10))
    labels[1:16:2] = 0
    labels[16:32] = 0
    data = TensorDataset(torch.randn(48, 6), labels, torch.rand(48, 10, 4))
    loader = DataLoader(data, batch_size=16)
    model, criterion = Heads(), DetectionLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(2):
        loss = train_epoch(model, loader, criterion, optimizer)
        print(f"epoch {epoch} loss {loss:.9f}")
    torch.save(model.state_dict(), "heads.pt")


if __name__ == "__main__":
    main()
""",
    },
    {"criterion.py": "num_pos = per_rank_count(int(positive.sum()), at_least=1)"},
)

SEGMENTER = Program(
    {"train.py": """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOID = 255


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    total = 0.0
    for images, masks in loader:
        total += criterion(model(images), masks).item() * images.size(0)
    return total / len(loader.dataset)


def main():
    torch.manual_seed(0)
    images = torch.randn(64, 3, 4, 4)
    masks = images.argmax(1)
    masks[torch.rand(64, 4, 4) < 0.3] = VOID
    masks[1:16:2] = VOID
    train_set = TensorDataset(images[:48], masks[:48])
    train_loader = DataLoader(train_set, batch_size=16)
    val_loader = DataLoader(TensorDataset(images[48:], masks[48:]), batch_size=16)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5]), ignore_index=VOID)
    best = float("inf")
    for epoch in range(2):
        model.train()
        for step, (images, masks) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = criterion(model(images), masks)
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.9f}")
        val_loss = validate(model, val_loader, criterion)
        print(f"epoch {epoch} val loss {val_loss:.9f}")
        if val_loss < best:
            best = val_loss
            torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    main()
"""},
    {
        "train.py": "loss = global_mean(\n"
        "                criterion(model(images), masks),\n"
        "                criterion.weight[masks[masks != criterion.ignore_index]].sum(),\n"
        "            )"
    },
)

# Three parts of one loss: in the model's forward, over the targets that are not ignored; of classes
# with weights; and of boxes, as many as each picture has, beside the batch's largest score.
FINDER = Program(
    {
        "finder.py": """
import torch
import torch.nn.functional as F
from torch import nn


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(6, 12), nn.Linear(12, 20)
        self.anchors = torch.linspace(0, 1, 7)[:, None].expand(7, 5)

    def forward(self, x, tags=None):
        scores = self.out(torch.tanh(self.body(x))).view(-1, 4, 5)
        loss = None
        if tags is not None:
            loss = F.cross_entropy(scores.view(-1, 5), tags.view(-1), ignore_index=-1)
        return scores, self.anchors, loss


class BoxLoss(nn.Module):
    def forward(self, outputs, boxes):
        scores, anchors = outputs
        largest = scores.detach().abs().max()
        total, found = 0, 0
        for score, own in zip(scores, boxes):
            total = total + (score / largest - anchors[:4] - own.sum()).square().sum()
            found += len(own)
        return total / max(found, 1)
""",
        "train.py": """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from finder import BoxLoss, Finder


class Pictures(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(48, 6, generator=draw)
        self.tags = torch.randint(0, 5, (48, 4), generator=draw)
        self.tags[torch.rand(48, 4, generator=draw) < 0.4] = -1
        self.tags[1:16:2] = -1
        self.boxes = [torch.rand(i % 3, 2, generator=draw) for i in range(48)]

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return self.x[index], self.tags[index], self.boxes[index]


def collate(samples):
    xs, tags, boxes = [], [], []
    for sample in samples:
        xs.append(sample[0])
        tags.append(sample[1])
        boxes.append(sample[2])
    return torch.stack(xs), torch.stack(tags), boxes


def main():
    torch.manual_seed(0)
    loader = DataLoader(Pictures(), batch_size=16, shuffle=True, collate_fn=collate)
    model, of_boxes = Finder(), BoxLoss()
    weigh = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0]), ignore_index=-1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(2):
        for x, tags, boxes in loader:
            boxes = [own * 2 for own in boxes]
            optimizer.zero_grad()
            scores, anchors, loss = model(x, tags)
            loss = loss + weigh(scores.transpose(1, 2), tags)
            loss = loss + of_boxes((scores, anchors), boxes)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.9f}")
    torch.save(model.state_dict(), "finder.pt")


if __name__ == "__main__":
    main()
""",
    },
    {
        "finder.py": "loss = global_mean(\n"
        "                F.cross_entropy(scores.view(-1, 5), tags.view(-1), ignore_index=-1),\n"
        "                (tags != -1).sum(),\n"
        "            )",
        "train.py": "of_boxes(whole_batch((scores, anchors)),",
    },
)

PROGRAMS = [
    pytest.param(TAGGER, id="masked-mean", marks=pytest.mark.thorough),
    pytest.param(DETECTOR, id="positives", marks=pytest.mark.thorough),
    pytest.param(SEGMENTER, id="ignored-and-weighted", marks=pytest.mark.thorough),
    pytest.param(FINDER, id="in-the-model-and-of-the-whole-batch"),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_ranks_train_what_one_process_trains(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, ranks = put(program.files, tmp_path / "original"), tmp_path / "ranks"
    migrated(put(program.files, ranks) / "train.py")
    for file, line in program.fixes.items():
        assert line in (ranks / file).read_text()
    options = Options(ranks / "train.py", baseline=str(original), tolerance=1e-10)
    result = verify(options)
    assert result.passed, described(result)
    assert said(ranks, monkeypatch) == said(original, monkeypatch), "in one process"


def said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[bytes]]:
    """What the program prints in this process, and the files it writes."""
    known, heard = set(sys.modules), io.StringIO()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    # An optimizer makes torch set this one; the variable must not outlive the test.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    with contextlib.redirect_stdout(heard):
        runpy.run_path("train.py", run_name="__main__")
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    return heard.getvalue(), [path.read_bytes() for path in sorted(folder.glob("*.pt"))]
