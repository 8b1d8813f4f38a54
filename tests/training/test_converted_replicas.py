"""Programs with DDP, converted to FSDP2, train, print and save what they did on two ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put, write
from tests.support.torchrun import torchrun

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]

# Ranks begin with other weights and other streams: DDP sends those of rank 0.
PROGRAM = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Cell(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.LayerNorm(size)
        self.inner = nn.Linear(size, size)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(torch.tanh(self.inner(self.scale(x))))


class Tower(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.first = nn.Linear(3, size)
        self.cells = nn.ModuleList([Cell(size) for _ in range(2)])
        self.last = nn.Linear(size, 1)

    def forward(self, x):
        x = self.first(x)
        for cell in self.cells:
            x = cell(x)
        return self.last(x)


def score(net, held_out):
    net.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in held_out:
            total += nn.functional.mse_loss(net(x), y).item()
    net.train()
    return total / len(held_out)


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    data = TensorDataset(torch.randn(48, 3), torch.randn(48, 1))
    held_out = DataLoader(TensorDataset(torch.randn(10, 3), torch.randn(10, 1)), 4, shuffle=True)
    torch.manual_seed(me)
    turn = DistributedSampler(data, seed=1)
    feed = DataLoader(data, 4, sampler=turn)
    net = Tower()
    adam = torch.optim.AdamW(net.parameters(), 0.02)
    net = DDP(net)
    best = 1e9
    for lap in range(3):
        turn.set_epoch(lap)
        for step, (x, y) in enumerate(feed):
            adam.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            adam.step()
            print(me, lap, step, f"{loss.item():.12f}", flush=True)
        if me == 0:
            state = {"net": net.module.state_dict(), "adam": adam.state_dict(), "lap": lap}
            torch.save(state, "last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
WRAP = "    net = DDP(net)\n"
ADAM = "    adam = torch.optim.AdamW(net.parameters(), 0.02)\n"
SAVE = """\
        if me == 0:
            state = {"net": net.module.state_dict(), "adam": adam.state_dict(), "lap": lap}
            torch.save(state, "last.pt")
"""
BEST = """\
        if lap >= 1 and me == 0:
            error = score(net, held_out)
            print("held out", f"{error:.12f}")
            if error < best:
                best = error
                torch.save({"net": net.module.state_dict(), "best": best}, "last.pt")
"""
STEP = """\
            adam.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            adam.step()
"""
PAUSED = """\
            if step % 3 != 2:
                with net.no_sync():
                    loss = nn.functional.mse_loss(net(x), y)
                    (loss / 3).backward()
            else:
                loss = nn.functional.mse_loss(net(x), y)
                (loss / 3).backward()
                adam.step()
                adam.zero_grad()
"""
TOGGLED = """\
            net.require_backward_grad_sync = step % 2 == 1
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            if step % 2 == 1:
                adam.step()
                adam.zero_grad()
"""
MODEL = "    net = Tower()\n"
GO_ON = """\
    if os.path.exists("begin.pt"):
        held = torch.load("begin.pt")
        net.module.load_state_dict(held["net"])
        adam.load_state_dict(held["adam"])
"""
NORMED = "        self.last = nn.Linear(size, 1)\n"
CASES: dict[str, list[tuple[str, str]]] = {
    "saved by rank 0": [],
    "evaluated by rank 0": [(SAVE, BEST)],
    "a switch": [
        (
            '    dist.init_process_group("gloo")\n    me = dist.get_rank()\n',
            '    many = int(os.environ.get("WORLD_SIZE", 1)) > 1\n    me = 0\n'
            '    if many:\n        dist.init_process_group("gloo")\n'
            "        me = dist.get_rank()\n    boss = not many or me == 0\n",
        ),
        (
            WRAP,
            "    bare = net\n    if many:\n"
            "        net = nn.parallel.DistributedDataParallel(net)\n",
        ),
        (SAVE, SAVE.replace("if me == 0", "if boss").replace("net.module", "bare")),
    ],
    "no_sync": [(STEP, PAUSED)],
    "toggled": [(STEP, TOGGLED)],
    "saved with its prefix": [(SAVE, SAVE.replace("net.module", "net"))],
    "loaded again": [(WRAP, WRAP + GO_ON)],
    "norms over batches": [
        (NORMED, f"        self.norm = nn.BatchNorm1d(size)\n{NORMED}"),
        ("        return self.last(x)\n", "        return self.last(self.norm(x))\n"),
        (
            SAVE,
            "        error = score(net, feed)\n"
            f'        print(me, "all", f"{{error:.12f}}", flush=True)\n{SAVE}',
        ),
    ],
}
IN_MAIN = ("evaluated by rank 0", "toggled")


def text(changes: list[tuple[str, str]]) -> str:
    """The program with some changes."""
    found = PROGRAM
    for old, new in changes:
        assert found.count(old) == 1, old
        found = found.replace(old, new)
    return found


def trained(folder: Path) -> tuple[list[str], Any]:
    """What both ranks print, in order, and what is saved."""
    done = torchrun(folder / "main.py", 2, cwd=folder, timeout=200)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split("\n")), torch.load(folder / "last.pt", weights_only=True)


def numbers(line: str) -> list[float]:
    return [float(word) for word in line.split() if word.replace(".", "").isdigit()]


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert type(one) is type(other)
        torch.testing.assert_close(other, one, atol=1e-10, rtol=0)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key, value in one.items():
            assert_same(value, other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert one == pytest.approx(other, abs=1e-10)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in IN_MAIN else pytest.mark.thorough) for case in CASES],
)
def test_a_program_with_ddp_trains_sharded_what_it_trained(case: str, tmp_path: Path) -> None:
    program = text(CASES[case])
    for name in ("old", "new"):
        put({"main.py": program}, tmp_path / name)
    outcome = migrate([tmp_path / "new" / "main.py"], Settings(strategy="fsdp"))
    assert not outcome.refusals, outcome.refusals
    write(outcome.changes, outcome.root)
    after = (tmp_path / "new" / "main.py").read_text()
    assert "DistributedDataParallel" not in after
    assert "fully_shard(block)" in after
    if case == "loaded again":  # what DDP saved
        first = put({"main.py": text([])}, tmp_path / "first")
        trained(first)
        for name in ("old", "new"):
            (tmp_path / name / "begin.pt").write_bytes((first / "last.pt").read_bytes())
    (printed, saved), (others, kept) = trained(tmp_path / "old"), trained(tmp_path / "new")
    assert len(others) == len(printed)
    for line, other in zip(printed, others, strict=True):
        assert numbers(other) == pytest.approx(numbers(line), abs=1e-10)
    assert_same(saved, kept)
