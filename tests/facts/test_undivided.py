"""Loaders whose batches are shared out once made, and what only looks like training on shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings

PROGRAM = """import argparse
import functools
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler
from torch.utils.data import TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=4)
args = parser.parse_args()
rows = TensorDataset(torch.rand(40, 4), torch.zeros(40).long())
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
half = args.size // 2
{made}
for epoch in range(3):
{anew}
    for x, y in {over}:
        scores = net(x)
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MEAN = "nn.functional.cross_entropy(scores, y)"
PLAIN = "DataLoader(rows, args.size, shuffle=True)"


def migrated(
    folder: Path, made: str = "", over: str = "loader", anew: str = "", **more: str
) -> str:
    """The migrated program, or why there is none."""
    text = PROGRAM.format(made=made, over=over, anew=f"    {anew}", loss=more.get("loss", MEAN))
    (folder / "main.py").write_text(text)
    outcome = migrate([folder / "main.py"], Settings(whole_batches=False))
    if outcome.refusals:
        return "\n".join(map(str, outcome.refusals))
    return next(c.after.decode() for c in outcome.changes if c.path == "main.py")


SHARED = [
    pytest.param({"over": PLAIN}, f"in share_batches({PLAIN})", id="in-the-loop"),
    pytest.param(
        {"made": "loader = functools.partial(DataLoader, shuffle=True)(rows, args.size)"},
        "share_batches(functools.partial(DataLoader, shuffle=True)(rows, args.size))",
        id="partial",
    ),
    pytest.param(
        {
            "made": "batches = BatchSampler(RandomSampler(rows), 4, True)\n"
            "loader = DataLoader(rows, batch_sampler=batches)"
        },
        "share_batches(DataLoader(rows, batch_sampler=batches))",
        id="batch-sampler",
    ),
    pytest.param(
        {
            "made": "loader = DataLoader(rows, 4, sampler=SubsetRandomSampler(range(20)))\n"
            "print(len(loader.sampler.indices))"
        },
        "share_batches(DataLoader(rows, 4, sampler=",
        id="its-sampler-is-asked",
    ),
]


@pytest.mark.parametrize(("how", "wanted"), SHARED)
def test_batches_are_shared_out_once_made(how: dict[str, str], wanted: str, tmp_path: Path) -> None:
    after = migrated(tmp_path, **how)
    assert wanted in after
    assert "begin_epoch" not in after, "rank 0 draws each epoch's order"
    assert "per_rank_batch_size" not in after, "batches are made whole"


def test_a_loader_that_each_epoch_makes_is_told_where_it_is_made(tmp_path: Path) -> None:
    after = migrated(tmp_path, anew=f"loader = {PLAIN}")
    assert "    begin_epoch(loader, epoch)\n    for i, (x, y) in enumerate(loader):" in after


def test_a_loop_that_trains_in_its_turn_is_refused(tmp_path: Path) -> None:
    text = PROGRAM.format(made="", over="loader", anew="    for fit in (rows, other):", loss=MEAN)
    text = text.replace("    for x, y", "    loader = DataLoader(fit, args.size)\n    for x, y")
    head, _, body = text.partition("    loader = ")
    body = "".join(f"    {line}\n" for line in f"    loader = {body}".splitlines())
    body = body.replace(
        "            loss.backward()", "            if fit is rows: loss.backward()"
    )
    (tmp_path / "main.py").write_text(head.replace("half", "other = rows\nhalf") + body)
    refusals = migrate([tmp_path / "main.py"], Settings(whole_batches=False)).refusals
    assert any("in another phase, evaluates" in str(one) for one in refusals)


CUT = "nn.functional.cross_entropy(scores[:{0}], y[:{0}]) + scores[{0}:].pow(2).mean()"


@pytest.mark.parametrize("bound", ["half", "2", "args.size // 2"])
def test_a_part_of_a_batch_is_not_a_part_of_each_share(bound: str, tmp_path: Path) -> None:
    assert "DDP401" in migrated(tmp_path, f"loader = {PLAIN}", loss=CUT.format(bound))


@pytest.mark.parametrize("part", ["1:", ":-1", "::2"])
def test_a_shift_leaves_out_another_sample_on_each_rank(part: str, tmp_path: Path) -> None:
    shifted = f"nn.functional.cross_entropy(scores[{part}], y[{part}])"
    assert "DDP401" in migrated(tmp_path, f"loader = {PLAIN}", loss=shifted)
