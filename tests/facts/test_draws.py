"""Loops that train on draws around the loop over a loader: generators of critics."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.link import analyze
from ddpify.pipeline import migrate
from ddpify.project import Project
from ddpify.settings import Settings
from tests.projects import put

CRITIC = """import torch
from torch import nn
from torch.utils.data import DataLoader
from elsewhere import rows, table


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(12, 1)

    def forward(self, x):
        return self.layers(x).mean()


size = 32
loader = DataLoader(rows, size, shuffle=True)
make, judge = nn.Linear(4, 12), Critic()
noise = torch.FloatTensor(size, 4)
makes = torch.optim.RMSprop(make.parameters())
judges = torch.optim.RMSprop(judge.parameters())
for epoch in range(5):
    batches, i = iter(loader), 0
    while i < len(loader):
        for _ in range(2):
            judge.zero_grad()
            loss = judge(make(noise.resize_(size, 4).normal_())) - judge(next(batches)[0])
            loss.backward()
            judges.step()
            i += 1
        make.zero_grad()
        noise.resize_(size, 4).normal_(0, 1)
        made = make(noise)
        lost = judge(made)
        (-lost).backward()
        makes.step()
"""
DATA = [
    pytest.param(("make(noise)", "make(noise + table[i])"), id="rows-of-a-table"),
    pytest.param(("make(noise)", "make(table[i])"), id="only-those"),
    pytest.param(("normal_(0, 1)\n", "fill_(table[i])\n"), id="filled-otherwise"),
    pytest.param(("judge(made)", "judge(made + next(given))"), id="bound-nowhere"),
    pytest.param(("make(noise)", "make(noise + torch.tensor(rows[i]))"), id="the-data-set"),
    pytest.param(("make(noise)", "make(torch.ones(size, 4))"), id="nothing-drawn"),
]


def test_what_is_drawn_in_each_pass_around_the_batches_is_of_a_rank(tmp_path: Path) -> None:
    outcome = migrate([put({"main.py": CRITIC}, tmp_path) / "main.py"], Settings())
    assert not outcome.refusals
    (main,) = [change.after.decode() for change in outcome.changes if change.path == "main.py"]
    assert main.count("noise.resize_(own_batch_size, 4).normal_(") == 2
    assert "begin_epoch(loader, epoch)\n    batches, i" in main


@pytest.mark.parametrize("change", DATA)
def test_data_around_the_batches_are_not_taken_for_draws(
    change: tuple[str, str], tmp_path: Path
) -> None:
    assert change[0] in CRITIC
    facts = analyze(Project.of(put({"main.py": CRITIC.replace(*change)}, tmp_path) / "main.py"))
    assert facts is not None
    assert facts.undivided[0][1] == "another loop trains on a loader"
