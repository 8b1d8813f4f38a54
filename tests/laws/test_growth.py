"""The work of a migration grows with the text that is read, and not with the ways through it.

In a network of many branches each name is made of several before it (BN-Inception, EfficientDet),
so there are as many ways back from what it returns as no reader could go. Calls are counted, not
seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent
from types import FrameType

import pytest

from ddpify import pipeline
from ddpify.ranks import operations, values
from ddpify.ranks.origins import LONGEST_KEY
from ddpify.settings import Settings

PROGRAM = """import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.parts, self.n = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)]), 3
    def forward(self, x0):
{forward}
net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 8, (64,)))
for x, y in DataLoader(data, batch_size=8, shuffle=True):
    x, y = x.cuda(), y.cuda()
    opt.zero_grad()
{loss}
    loss.backward()
    opt.step()
"""
BRANCHES = (
    "a{i} = self.a(x{p})\nb{i} = F.relu(self.b(x{p}))\nx{i} = torch.cat([a{i}, b{i}, x{p}], 1)"
)
COMPARED = "out, h = net(x)\nm = h @ h.t()\nloss = F.cross_entropy(out, y) + m.sum() / len(x) ** 2"
EACH = "outs = net(x)\nloss = sum(F.cross_entropy(out, y) for out in outs) / len(outs)"
NUMBERS = "n{i} = n{p} + m{p}\nm{i} = m{p} * n{p}"


def _chain(link: str, n: int) -> str:
    return "\n".join(link.format(i=i, p=i - 1) for i in range(1, n + 1))


def _program(case: str, n: int) -> str:
    """A program with a chain of so many links; each reads the one before more than once."""
    forward, loss = {
        "branches": (f"{_chain(BRANCHES, n)}\nreturn x{n}, a{n}", COMPARED),
        "lists-of-themselves": (
            f"l0 = [x0, x0]\n{_chain('l{i} = [l{p}[0], l{p}[1]]', n)}\n"
            f"l0 = [l{n}[0], l{n - 1}[1]]\nreturn l{n}",
            EACH,
        ),
        "numbers": (
            f"n0 = m0 = self.n\n{_chain(NUMBERS, n)}\nouts = []\nfor i in range(n{n}):\n"
            "    outs.append(self.parts[i](x0))\nreturn outs",
            EACH,
        ),
    }[case]
    return PROGRAM.format(forward=indent(forward, " " * 8), loss=indent(loss, " " * 4))


class _TooMuch(BaseException):
    """What no reader catches."""


def _calls(text: str, folder: Path, most: int | None = None) -> int:
    """How many calls of Python functions a migration takes. Raises _TooMuch above ``most``."""
    path, count = folder / "train.py", 0
    path.write_text(text)

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"
        if most is not None and count > most:
            raise _TooMuch

    outer = sys.getprofile()
    sys.setprofile(counted)
    try:
        pipeline.migrate([path], Settings())
    finally:
        sys.setprofile(outer)
    return count


@pytest.mark.parametrize("case", ["branches", "lists-of-themselves", "numbers"])
def test_work_does_not_multiply_along_a_chain(case: str, tmp_path: Path) -> None:
    few = _calls(_program(case, 4), tmp_path)
    try:  # six times as many links: squares of that are meant to pass, powers are not
        _calls(_program(case, 24), tmp_path, most=10 * few)
    except _TooMuch:
        pytest.fail("the work multiplies with each link of the chain")


def test_keys_of_sums_have_a_longest_and_are_told_apart() -> None:
    """Each side of a sum is in its key: along a chain they would double, and calls stay as many."""
    sums = {start: values.symbol(start) for start in ("loss", "other")}
    for _ in range(16):
        sums = {start: operations.binary("Add", one, one) for start, one in sums.items()}
    keys = {values.text(one.atoms[0]) for one in sums.values()}
    assert len(keys) == 2
    assert max(map(len, keys)) <= LONGEST_KEY
