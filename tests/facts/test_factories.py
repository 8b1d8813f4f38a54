"""A factory that is called for training and for evaluation: its loaders are told apart."""

from __future__ import annotations

from pathlib import Path

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

SCORED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def feed(mode="train"):
    rows = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    return DataLoader(rows, batch_size=8, shuffle=True)


def recall(guess, wanted):
    hits = ((guess == 1) & (wanted == 1)).sum()
    return float(hits) / (float((wanted == 1).sum()) + 1e-6)


def main():
    learn, check = feed("train"), feed("valid")
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    best = 0.0
    for epoch in range(3):
        net.train()
        for x, y in learn:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        net.eval()
        score = 0.0
        for x, y in check:
            x = x.float()
            score += recall(net(x).argmax(1), y)
        if score > best:
            best = score
            torch.save(net.state_dict(), "best.pt")


if __name__ == "__main__":
    main()
"""


def test_what_only_evaluates_is_gone_through_whole_and_decided_from_once(tmp_path: Path) -> None:
    outcome = migrate([put({"train.py": SCORED}, tmp_path) / "train.py"], Settings())
    assert outcome.refusals == ()
    after = next(change.after.decode() for change in outcome.changes if change.path == "train.py")
    assert 'distributed_sampler(rows, shuffle=True) if mode == "train" else None' in after.replace(
        "'", '"'
    )
    assert "\n        score = broadcast(score)\n" in after, "x, which each round binds, stays"
    assert "save_on_main(unwrap(net).state_dict()" in after
