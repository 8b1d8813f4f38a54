"""Torch's functions: which give a sample a row, by what torch does and by what is read.

A loss that is called a mean and is none trains something else without a word; one that is not known
is refused, or gathered for nothing. What torch says decides: half the samples, and the other half,
against all of them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ddpify.facts.roles import backwards
from ddpify.facts.values import Kind, Measure
from tests.facts.marks import facts_of

SAMPLES = 8
PROGRAM = """import torch.nn.functional as F
B = 8
samples = TensorDataset(torch.randn(64, 8), torch.randn(64, 8), torch.randint(0, 8, (64,)))
net = nn.Linear(8, 8)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
idx = torch.tensor([0, 3])
ker = torch.ones(1, 2, 2, 2)
wgt = torch.randn(8, 8)
wgt3 = torch.randn(2, 8, 8)
for x, y, lab in DataLoader(samples, batch_size=B, shuffle=True, drop_last=True):
    out = net(x)
    img = out.view(-1, 2, 2, 2)
    grid = y.view(-1, 2, 2, 2)
    il = torch.full((x.size(0),), 2, dtype=torch.long)
    tl = torch.ones(x.size(0), dtype=torch.long)
{body}
    loss.backward()
    opt.step()
"""


class Row(NamedTuple):
    kind: str
    statements: tuple[str, ...]
    loss: str


def rows() -> list[Row]:
    lines = Path(__file__).with_name("torch_functions.txt").read_text().splitlines()
    found = []
    for line in lines:
        if not line.startswith("#"):
            kind, text = line.split(maxsplit=1)
            *statements, loss = (part.strip() for part in text.split(";;"))
            found.append(Row(kind, tuple(statements), loss))
    return found


ROWS = rows()


def value(row: Row, chosen: slice) -> float:
    """What a row gives of some of the samples."""
    torch.manual_seed(0)
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wgt, wgt3, out, y = (
            torch.randn(size, dtype=torch.float64) for size in ((8, 8), (2, 8, 8), (8, 8), (8, 8))
        )
        lab = torch.randint(0, 8, (SAMPLES,))[chosen]
        out, y, number = out[chosen].clone(), y[chosen], len(out[chosen])
        names = {"torch": torch, "F": F, "nn": nn, "B": number, "idx": torch.tensor([0, 3])}
        names |= {"wgt": wgt, "wgt3": wgt3, "out": out, "y": y, "x": y, "lab": lab}
        names |= {"ker": torch.ones(1, 2, 2, 2, dtype=torch.float64)}
        names |= {"img": out.view(-1, 2, 2, 2), "grid": y.view(-1, 2, 2, 2)}
        names |= {"il": torch.full((number,), 2), "tl": torch.ones(number, dtype=torch.long)}
        torch.manual_seed(1)
        for statement in row.statements:
            exec(statement, names)
        return float(eval(row.loss, names))


def is_mean(row: Row) -> bool:
    """Whether the whole is the mean of its halves."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        first, second, whole = (
            value(row, part) for part in (slice(4), slice(4, 8), slice(SAMPLES))
        )
    finally:
        torch.set_default_dtype(default)
    return abs((first + second) / 2 - whole) < 1e-9 * max(1.0, abs(whole))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.loss)
def test_torch_says_so(row: Row) -> None:
    assert is_mean(row) == (row.kind != "other")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.loss)
def test_it_is_read_as_that(row: Row, tmp_path: Path) -> None:
    body = "\n".join([*row.statements, f"loss = {row.loss}"])
    facts = facts_of(PROGRAM.format(body=indent(body, "    ")), tmp_path)
    (loss,) = (call.receiver for call in backwards(facts.calls) if call.receiver is not None)
    gathered = facts.pooled or facts.shares or facts.whole or loss.dep(Kind.AVERAGED, Kind.COUPLED)

    assert (loss.measure is Measure.MEAN and not gathered) == (row.kind == "mean")
