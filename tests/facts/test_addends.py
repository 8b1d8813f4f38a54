"""Losses that add a sum over the batch to a mean: which part is multiplied by the number of ranks.

Another part, or one that is also computed where nothing trains, would be N times too large.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from ddpify.rules.gradients import ddp401_sum_loss
from tests.facts.marks import facts_of
from tests.projects import judged

PROGRAM = """import torch.nn.functional as F
net, other = nn.Linear(4, 3), nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
rows = TensorDataset(torch.rand(8, 4), torch.rand(8, 3))
def run(loader, trains):
    for x, y in loader:
        out = net(x)
{body}
def both(out, y):
    return F.mse_loss(out, y) + out.square().sum()
def odd(out):
    return (out - out.detach().max()).square().sum() / out.sum()
for epoch in range(2):
    run(DataLoader(rows, 2, shuffle=True), True)
{after}
"""
STEP = "loss.backward()\noptimizer.step()"
ROWS = [
    pytest.param("loss = F.mse_loss(out, y) + 2 * out.sum()", ["2 * out.sum()"], id="term"),
    pytest.param(
        "size = out.square().sum()\nloss = 3 * (F.mse_loss(out, y) - size / 2)\nprint(size)",
        ["size / 2"],
        id="name",
    ),
    pytest.param(
        "loss = F.mse_loss(out, y)\nloss += out.sum()\nloss = loss + y.sum() * out.mean()",
        [],
        id="beside-what-is-neither",
    ),
    pytest.param("loss = out.sum()\nloss += F.mse_loss(out, y)", ["out.sum()"], id="sum-first"),
    pytest.param("loss = both(out, y)", [], id="in-a-function"),
    pytest.param("loss = F.mse_loss(out, y) + odd(out) + out.sum()", [], id="unknown"),
]


def scaled(body: str, folder: Path, after: str = "", step: str = STEP) -> list[str]:
    """What is multiplied by the number of ranks."""
    text = PROGRAM.format(body=indent(f"{body}\n{step}", " " * 8), after=after)
    facts = facts_of(text, folder)
    found = judged(facts, [ddp401_sum_loss.RULE])
    return [facts.text(e.site) for f in found for e in f.fix if "get_world_size" in e.code]


@pytest.mark.parametrize(("body", "wanted"), ROWS)
def test_the_sum_alone_is_scaled(body: str, wanted: list[str], tmp_path: Path) -> None:
    assert scaled(body, tmp_path) == wanted


def test_not_where_the_loop_may_only_look(tmp_path: Path) -> None:
    """Of an evaluation that each rank makes whole it would be N times the loss."""
    body, held = "loss = F.mse_loss(out, y) + out.sum()", "run(DataLoader(rows, 2), False)"
    step = f"if trains:\n{indent(STEP, '    ')}\nprint(loss)"
    assert scaled(body, tmp_path, f"    {held}", step) == []


def test_not_twice(tmp_path: Path) -> None:
    body = "from ddp_utils import get_world_size\nloss = F.mse_loss(out, y)"
    assert scaled(f"{body} + out.sum() * get_world_size()", tmp_path) == []
