"""Small programs that are planned for: one loader, one model, one loop."""

from __future__ import annotations

from pathlib import Path

from ddpify.advice.advise import advise
from ddpify.advice.model import Advice
from ddpify.pipeline import examine
from ddpify.settings import Settings
from tests.projects import put

TRAIN = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEEN = 0


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(36, 10), torch.randint(0, 5, (36,)))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=args.momentum)
    for epoch in range(args.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}")


if __name__ == "__main__":
    main()
"""
PARALLEL = TRAIN.replace(
    "nn.Linear(20, 5))\n", "nn.Linear(20, 5))\n    model = nn.DataParallel(model)\n"
)


def changed(text: str, *changes: tuple[str, str]) -> str:
    """``text`` with each first text, which must be there, replaced by the second."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def advice(
    folder: Path,
    text: str = TRAIN,
    files: dict[str, str] | None = None,
    settings: Settings | None = None,
    nproc: int = 0,
    arguments: tuple[str, ...] = (),
) -> Advice:
    """What is advised for ``train.py`` with this text."""
    put({"train.py": text, **(files or {})}, folder)
    chosen = settings or Settings()
    outcome, facts = examine((folder / "train.py",), chosen)
    assert not outcome.refusals
    return advise(outcome, facts[0], chosen, nproc, arguments)
