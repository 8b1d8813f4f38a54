"""What a program looks up, counts or builds in an unusual way, trained by two ranks as by one.

A model of a module that an option names, optimizers around optimizers, passes without an epoch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.verify.options import Options
from ddpify.verify.run import verify
from tests.projects import migrated, put
from tests.verify.test_hazards import described

pytestmark = [pytest.mark.training, pytest.mark.spread]

NETS = """from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(5, {width})
        self.head = nn.Linear({width}, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())
"""
SAM = """import torch


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["up"] = group["rho"] * p.grad
                p.add_(self.state[p]["up"])
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["up"])
        self.base_optimizer.step()
        self.zero_grad()
"""
TRAIN = """import argparse
import importlib

import torch
import torch.nn.functional as F
from sam import SAM
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", default="small")
    args = parser.parse_args()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(48, 5), torch.randn(48, 1))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = importlib.import_module(f"nets.{args.net}").Net()
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    step = 0
    while step < 9:
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            optimizer.first_step()
            F.mse_loss(model(x), y).backward()
            optimizer.second_step()
            step += 1
    torch.save(model.state_dict(), "net.pt")


if __name__ == "__main__":
    main()
"""
FILES = {
    "train.py": TRAIN,
    "sam.py": SAM,
    "nets/__init__.py": "",
    "nets/small.py": NETS.format(width=4),
    "nets/large.py": NETS.format(width=64),
}


def test_ranks_train_what_one_process_trains(tmp_path: Path) -> None:
    original, ranks = put(FILES, tmp_path / "original"), tmp_path / "ranks"
    migrated(put(FILES, ranks) / "train.py")
    text = (ranks / "train.py").read_text()
    assert "begin_epoch(loader, passes)\n        passes += 1" in text
    result = verify(Options(ranks / "train.py", baseline=str(original), tolerance=1e-10))
    assert result.passed, described(result)
