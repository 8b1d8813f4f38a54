"""What an evaluation collects is, put together from three ranks, what one process collects.

The evaluation set does not divide by the ranks, nor by the batch, and the numbers printed depend
on the order of the samples and on how they are cut into batches.
"""

from __future__ import annotations

from pathlib import Path

from ddpify import cli
from tests.projects import put
from tests.training.runs import on_ranks, one_process, side_by_side

RANKS = 3
METRICS = """import numpy as np
import torch


class ConfusionMatrix:
    def __init__(self, num_classes, ignore_index=255):
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.reset()

    def reset(self):
        self.mat = np.zeros((self.num_classes, self.num_classes), dtype=np.int64)

    def update(self, target, pred):
        k = target != self.ignore_index
        inds = self.num_classes * target[k] + pred[k]
        self.mat += np.bincount(inds, minlength=self.num_classes**2).reshape(self.mat.shape)

    def miou(self):
        inter = np.diag(self.mat)
        union = self.mat.sum(0) + self.mat.sum(1) - inter
        return float((inter / np.maximum(union, 1)).mean())


class AverageMeter:
    def __init__(self):
        self.val, self.sum, self.count = 0.0, 0.0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class LateMatrix:
    def __init__(self):
        self.mat = None

    def update(self, target, pred):
        if self.mat is None:
            self.mat = torch.zeros((3, 3), dtype=torch.int64)
        k = target != 255
        self.mat += torch.bincount(3 * target[k] + pred[k], minlength=9).reshape(3, 3)


def average_precision(detections, truths):
    ranked = sorted(detections, key=lambda d: -d["score"])
    hits = np.cumsum([d["kind"] == truths[d["image"]] for d in with_images(ranked, detections)])
    return float((hits / np.arange(1, len(hits) + 1)).mean())


def with_images(ranked, detections):
    places = {id(d): i for i, d in enumerate(detections)}
    return [{**d, "image": places[id(d)]} for d in ranked]
"""
MAIN = """import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from metrics import AverageMeter, ConfusionMatrix, LateMatrix, average_precision


def make_data(n, unlabelled=0):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, 6, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.3).long()
    if unlabelled:
        y[::unlabelled] = 255
    return TensorDataset(x, y)


def train_epoch(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    matrix = ConfusionMatrix(3)
    outputs, detections, truths = [], [], []
    for x, y in loader:
        out = model(x)
        matrix.update(y.numpy(), out.argmax(1).numpy())
        outputs.append(out)
        for scores, label in zip(out.softmax(1), y):
            best, kind = scores.max(0)
            detections.append({"score": best.item(), "kind": kind.item()})
            truths.append(label.item())
    ap = average_precision(detections, truths)
    order = sum(i * t for i, t in enumerate(truths))
    spreads = [float(batch.std()) for batch in outputs]
    return matrix.miou(), ap, order, spreads


@torch.no_grad()
def losses_of(model, loader, criterion):
    model.eval()
    losses, matrix, largest = AverageMeter(), LateMatrix(), 0.0
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        losses.update(loss.item(), x.size(0))
        matrix.update(y, out.argmax(1))
        largest += out[y == 1].max().item()
    return losses.avg, largest / len(loader), matrix.mat.flatten().tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--few", type=int, default=31)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_loader = DataLoader(make_data(60), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(make_data(53, unlabelled=7), batch_size=8)
    few_loader = DataLoader(make_data(args.few, unlabelled=3), batch_size=args.batch_size + 4)
    fixed, _ = next(iter(few_loader))
    print("batches", len(few_loader))
    criterion = nn.CrossEntropyLoss(ignore_index=255)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    best = 0.0
    for epoch in range(3):
        train_epoch(model, train_loader, optimizer)
        miou, ap, order, spreads = evaluate(model, val_loader)
        print(f"epoch {epoch}: mIoU {miou:.6f} AP {ap:.6f} order {order}")
        print(len(spreads), " ".join(f"{s:.6f}" for s in spreads))
        loss, largest, counts = losses_of(model, few_loader, criterion)
        print(f"loss {loss:.6f} largest {largest:.6f} counts {counts}")
        with torch.no_grad():
            print("fixed", model(fixed).argmax(1).tolist())
        if miou > best:
            best = miou
            print("better")


if __name__ == "__main__":
    main()
"""


def test_collected_metrics_are_those_of_one_process(tmp_path: Path) -> None:
    files = {"main.py": MAIN, "metrics.py": METRICS}
    before, after = (put(files, tmp_path / name) for name in ("before", "after"))
    assert cli.main(["migrate", str(after / "main.py"), "--inplace"]) == cli.CLEAN
    text = (after / "main.py").read_text()
    for line in (
        "    matrix.mat = reduce_sum(matrix.mat)\n",
        "    detections, truths = gather_samples(detections, truths)\n",
        "    outputs = gather_batches(outputs)\n",
        "    few_sampler = evaluation_sampler(few_dataset, args.batch_size + 4)\n",
        "    fixed, _ = broadcast(next(iter(few_loader), None))\n",
        "    largest, matrix.mat = reduce_sum(largest, matrix.mat)\n    reduce_meter(losses)\n",
    ):
        assert text.count(line) == 1
    assert cli.main(["diff", str(after / "main.py")]) == cli.CLEAN
    alone, ranks = side_by_side(
        lambda: one_process(before, ["main.py"], tmp_path / "1", f"--global-order={RANKS}"),
        lambda: on_ranks(after, ["main.py"], RANKS, tmp_path / "n"),
    )
    for job in (alone, ranks):
        assert job.finished, "\n".join(run.stderr for run in job.runs)
    expected = alone.runs[0].stdout
    assert expected.count("epoch") == 3
    assert [run.stdout for run in ranks.runs] == [expected, "", ""]
    entered = {tuple((call.name, call.site) for call in run.collectives) for run in ranks.runs}
    assert len(entered) == 1  # of sizes each rank's own: pickled lists
