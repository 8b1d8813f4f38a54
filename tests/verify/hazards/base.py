"""What a hazard is, and the program most of them are made of by changing a line or two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import TypeAlias

from ddpify.verify.options import Options

Change: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Hazard:
    """One way to migrate ``original`` wrongly; ``number`` is that of PATTERNS ("B1.5", "B1.5b").

    ``rule`` is the id the likeliest cause must have, ``failing`` are the checks that must fail.
    ``right`` is the migration that avoids just this hazard, "" where none is known that trains
    the same model. ``timeout`` (seconds without progress) is short for those that hang.
    """

    number: str
    title: str
    rule: str
    original: str
    wrong: str
    failing: tuple[str, ...]
    right: str = ""
    arguments: tuple[str, ...] = ()
    timeout: float = 60.0
    neutralise: frozenset[str] = frozenset()

    def options(self, folder: Path, distributed: str = "") -> Options:
        """Write the original and ``distributed`` (by default the wrong one) into ``folder``."""
        return Options(
            script=put(distributed or self.wrong, folder / "distributed"),
            arguments=self.arguments,
            nproc=2,
            baseline=str(put(self.original, folder / "original").parent),
            timeout=self.timeout,
            neutralise=self.neutralise,
        )


def put(text: str, folder: Path) -> Path:
    """Write a project of one script; the script."""
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("torch\n")
    (folder / "train.py").write_text(text)
    return folder / "train.py"


def changed(text: str, *changes: Change) -> str:
    """``text`` with each first text, which stands in it once, replaced by the second.

    Raises:
        ValueError: a text is not there, or more than once.
    """
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"a program is to be changed where it says {old!r}, once")
        text = text.replace(old, new)
    return text


def hazard(
    number: str,
    title: str,
    rule: str,
    failing: Iterable[str],
    *wrong: Change,
    program: Iterable[Change] = (),
    alone: Iterable[Change] = (),
    original: str = "",
    right: Iterable[Change] | None = (),
    timeout: float = 60.0,
    neutralise: Iterable[str] = (),
    arguments: tuple[str, ...] = (),
) -> Hazard:
    """A hazard made of ``ORIGINAL`` and ``CORRECT``.

    ``program`` is changed in both: another task, another loss; ``alone`` then in the original.
    ``wrong`` is changed in the migration to make the hazard, ``right`` instead to avoid it (None:
    not known). ``original`` stands in for the whole original where the changes do not fit both.
    """
    migrated = changed(CORRECT, *program) if not original else CORRECT
    return Hazard(
        number=number,
        title=title,
        rule=rule,
        original=original or changed(ORIGINAL, *program, *alone),
        wrong=changed(migrated, *wrong),
        failing=tuple(failing),
        right="" if right is None else changed(migrated, *right),
        arguments=arguments,
        timeout=timeout,
        neutralise=frozenset(neutralise),
    )


def step(text: str) -> Change:
    """In place of the lines of the training loop that compute the loss and its gradients."""
    return LOSS, indent(dedent(text), " " * 12)


def setup(text: str) -> Change:
    """More lines of ``main``, before the epochs."""
    return LOOP, indent(dedent(text), " " * 4) + LOOP


def define(text: str) -> Change:
    """A function or class of the module, before ``evaluate``."""
    return "@torch.no_grad()\n", dedent(text) + "\n\n@torch.no_grad()\n"


LOSS = """            loss = criterion(model(inputs), labels)
            loss.backward()
"""
LOOP = """
    for epoch in range(args.epochs):
"""

# Both programs spell out the same lines where a hazard's task may differ from the usual one.
ORIGINAL = """import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.encoder(x))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = count = 0
    for inputs, labels in loader:
        correct += (model(inputs).argmax(1) == labels).sum().item()
        count += len(labels)
    return correct / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    torch.manual_seed(0)
    fixed = torch.Generator().manual_seed(1)
    x = torch.randn(128, 8, generator=fixed)
    y = (x @ torch.randn(8, 4, generator=fixed)).argmax(1)
    train_set, val_set = random_split(TensorDataset(x, y), [96, 32])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        train_loss = total / len(train_set)
        accuracy = evaluate(model, val_loader)
        print(f"epoch {epoch} loss {train_loss:.6f} accuracy {accuracy:.4f}")
        torch.save(model.state_dict(), "last.pt")


if __name__ == "__main__":
    main()
"""

# ``model`` is what trains (the wrapper), ``net`` the module inside it.
CORRECT = """import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.encoder(x))


def reduce_sum(number):
    total = torch.tensor(float(number), dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(total)
    return total.item()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = count = 0
    for inputs, labels in loader:
        correct += (model(inputs).argmax(1) == labels).sum().item()
        count += len(labels)
    return reduce_sum(correct) / reduce_sum(count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    fixed = torch.Generator().manual_seed(1)
    x = torch.randn(128, 8, generator=fixed)
    y = (x @ torch.randn(8, 4, generator=fixed)).argmax(1)
    train_set, val_set = random_split(TensorDataset(x, y), [96, 32])
    batch_size = args.batch_size // world
    sampler = DistributedSampler(train_set, world, rank, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=batch_size, sampler=sampler)
    val_share = Subset(val_set, range(rank, len(val_set), world))
    val_loader = DataLoader(val_share, batch_size=batch_size)

    net = Net()
    model = DistributedDataParallel(net) if world > 1 else net
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = 0.0
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        train_loss = reduce_sum(total) / len(train_set)
        accuracy = evaluate(net, val_loader)
        if rank == 0:
            print(f"epoch {epoch} loss {train_loss:.6f} accuracy {accuracy:.4f}")
            torch.save(net.state_dict(), "last.pt")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
