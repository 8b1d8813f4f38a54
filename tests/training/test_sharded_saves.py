"""A program that is migrated with ``--checkpoint sharded(-async)`` goes on from what it wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from ddpify import cli
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from runtime import load_sharded
from tests.projects import write
from tests.support.torchrun import torchrun

pytestmark = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(600)]
PROGRAM = """\
import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ckpt", default="last.pt")
    args = parser.parse_args()
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(48, 5), torch.randint(0, 3, (48,)))
    loader = DataLoader(rows, batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 7), nn.ReLU(), nn.Linear(7, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    first = 0
    if os.path.isfile(args.ckpt):
        kept = torch.load(args.ckpt)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        scheduler.load_state_dict(kept["scheduler"])
        first = kept["epoch"]
        print("resumed at", first)
    for epoch in range(first, args.epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        print(epoch, f"{total:.5f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state["scheduler"], state["epoch"] = scheduler.state_dict(), epoch + 1
        torch.save(state, args.ckpt)


if __name__ == "__main__":
    main()
"""


@pytest.fixture(params=["sharded", "sharded-async"])
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "project").mkdir()
    entry = tmp_path / "project" / "main.py"
    entry.write_text(PROGRAM)
    outcome = migrate([entry], Settings(strategy="fsdp", checkpoint=request.param))
    assert not outcome.refusals
    write(outcome.changes, outcome.root)
    return entry.parent


def train(folder: Path, epochs: int, ranks: int = 2) -> str:
    done = torchrun(folder / "main.py", ranks, f"--epochs={epochs}", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.rank_stdout[0]


def test_a_run_that_goes_on_ends_where_one_without_a_break_does(
    project: Path, tmp_path: Path
) -> None:
    shutil.copytree(project, tmp_path / "whole")
    train(tmp_path / "whole", 2)
    train(project, 1)
    shutil.copytree(project, tmp_path / "four")
    assert "resumed at 1" in train(project, 2)
    assert "resumed at 1" in train(tmp_path / "four", 2, ranks=4)
    one, other, four = (
        load_sharded(folder / "last.pt")
        for folder in (tmp_path / "whole", project, tmp_path / "four")
    )
    assert (one["epoch"], one["scheduler"]) == (other["epoch"], other["scheduler"])
    for name, weight in one["model"].items():
        assert torch.equal(weight, other["model"][name])
        torch.testing.assert_close(weight, four["model"][name])
    for number, kept in one["optimizer"]["state"].items():
        assert all(torch.equal(v, other["optimizer"]["state"][number][k]) for k, v in kept.items())


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ('[tool.ddpify]\nstrategy = "fsdp"\ncheckpoint = "sharded"\n', ()),
        ("", ("--strategy=fsdp", "--checkpoint=sharded-async")),
    ],
    ids=["sharded", "async"],
)
def test_verify_compares_what_the_shards_hold(
    tmp_path: Path, settings: str, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "main.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").write_text(settings)
    assert cli.main(["verify", str(tmp_path / "main.py"), "--json=-", *flags]) == cli.CLEAN
    checks = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["files-once"]["verdict"] == "pass"
    assert checks["checkpoints"]["verdict"] == "pass"
    assert checks["checkpoints"]["measured"].startswith("1 file")
