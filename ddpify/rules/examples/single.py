"""Training projects as one process ran them, each in a style of its own.

For rules to point at lines of code that nobody has thought of ranks for.
"""

from __future__ import annotations

from ddpify.rules.base import Example

# As one process ran it: everything in one file, most of it in main().
SINGLE = Example(tuple({"main.py": """import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def accuracy(net, pairs):
    net.eval()
    right, seen = 0, 0
    with torch.no_grad():
        for signal, label in pairs:
            guess = net(signal.cuda()).argmax(1)
            right += (guess == label.cuda()).sum().item()
            seen += len(label)
    return right / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bs", type=int, default=32)
    opt = parser.parse_args()
    torch.manual_seed(7)
    signals, labels = torch.randn(1000, 16), torch.randint(0, 4, (1000,))
    fitting = DataLoader(TensorDataset(signals[:800], labels[:800]), opt.bs, shuffle=True)
    holdout = DataLoader(TensorDataset(signals[800:], labels[800:]), 100)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    adam = torch.optim.Adam(net.parameters())
    for round_ in range(5):
        net.train()
        for signal, label in fitting:
            adam.zero_grad()
            objective = nn.functional.cross_entropy(net(signal.cuda()), label.cuda())
            objective.backward()
            adam.step()
        print("round", round_, "accuracy", accuracy(net, holdout))
    torch.save(net.state_dict(), "net.pth")


if __name__ == "__main__":
    main()
"""}.items()))

# As one process ran it: a class that holds everything, the loaders in a dict.
LEARNER = Example(
    tuple(
        {
            "main.py": """import torch
from torch.utils.data import DataLoader, TensorDataset

from learner import Learner

if __name__ == "__main__":
    rows = TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
    others = TensorDataset(torch.randn(100, 8), torch.randn(100, 1))
    feeds = {
        "fit": DataLoader(rows, batch_size=64, shuffle=True),
        "check": DataLoader(others, batch_size=50),
    }
    Learner(feeds, "cuda").run(3)
""",
            "learner.py": """import torch
from torch import nn


class Learner:
    def __init__(self, feeds, place):
        self.feeds, self.place = feeds, place
        self.core = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.core.to(place)
        self.solver = torch.optim.SGD(self.core.parameters(), lr=0.01)
        self.measure = nn.MSELoss()

    def once(self):
        self.core.train()
        for inputs, wanted in self.feeds["fit"]:
            self.solver.zero_grad()
            off = self.measure(self.core(inputs.to(self.place)), wanted.to(self.place))
            off.backward()
            self.solver.step()

    def run(self, times):
        for turn in range(times):
            self.once()
            torch.save({"core": self.core.state_dict(), "turn": turn}, "core.pt")
""",
        }.items()
    )
)

# As one process ran it on all GPUs: nn.DataParallel, from top to bottom.
LEGACY = Example(tuple({"main.py": """import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

samples = TensorDataset(torch.randn(2048, 12), torch.randint(0, 3, (2048,)))
batches = DataLoader(samples, batch_size=128, shuffle=True)
judge = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)).cuda()
judge = nn.DataParallel(judge)
if os.path.exists("judge.pt"):
    judge.load_state_dict(torch.load("judge.pt"))
entropy = nn.CrossEntropyLoss().cuda()
optimiser = torch.optim.SGD(judge.parameters(), 0.05)
for number in range(30):
    for facts, verdict in batches:
        optimiser.zero_grad()
        penalty = entropy(judge(facts.cuda()), verdict.cuda())
        penalty.backward()
        optimiser.step()
    torch.save(judge.state_dict(), "judge.pt")
"""}.items()))

# What nearly every script has of its own.
METER = """class Meter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


"""
