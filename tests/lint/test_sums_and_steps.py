"""How much a sum matters goes by the optimizer of the model whose loss it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.rules.base import Severity

PROGRAM = """
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model, critic = DDP(nn.Linear(8, 4)), DDP(nn.Linear(8, 4))
    optimizer = torch.optim.{}(model.parameters(), lr=0.1)
    other = torch.optim.{}(critic.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(8):
        x, y = torch.randn(4, 8), torch.randint(0, 4, (4,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y, reduction="sum").backward()
        optimizer.step()
        other.zero_grad()
        F.cross_entropy(critic(x), y).backward()
        other.step()
    dist.destroy_process_group()


main()
"""


@pytest.mark.parametrize(
    ("optimizer", "other", "severity"),
    [
        ("SGD", "Adam", Severity.WARNING),
        ("Adam", "SGD", Severity.NOTE),
        ("RMSprop", "RMSprop", Severity.NOTE),
    ],
)
def test_a_sum_is_noted_where_its_models_steps_are_as_long(
    tmp_path: Path, optimizer: str, other: str, severity: Severity
) -> None:
    file = tmp_path / "main.py"
    file.write_text(PROGRAM.format(optimizer, other))
    found = {one.rule: one.severity for one in lint(tmp_path, [file]).findings}
    assert found == {"DDP401": severity}
