"""What prints its losses and leaves `net.pt` trains alike in one process and on two ranks."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

from ddpify.settings import Settings
from tests.projects import migrated, put
from tests.support import warm
from tests.support.torchrun import torchrun


def train_alike(text: str, folder: Path, settings: Settings, error: float = 1e-12) -> str:
    """The program as migrated, proven by the numbers that it prints and the weights it leaves."""
    original = put({"train.py": text}, folder / "original")
    ranks = put({"train.py": text}, folder / "ranks")
    migrated(ranks / "train.py", settings)
    wanted = said([warm.python(), "train.py"], original)
    assert said([warm.python(), "train.py"], ranks) == wanted, "in one process"
    alone = torch.load(original / "net.pt")
    assert same(torch.load(ranks / "net.pt"), alone, 0.0)
    done = torchrun(ranks / "train.py", 2, cwd=ranks)
    assert done.returncode == 0, done.stderr
    assert numbers(done.rank_stdout[0]) == pytest.approx(numbers(wanted), abs=2e-9)
    assert done.rank_stdout[1] == ""
    assert same(torch.load(ranks / "net.pt"), alone, error)
    return (ranks / "train.py").read_text()


def said(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], error: float) -> bool:
    assert list(found) == list(wanted)
    return all(float((found[name] - wanted[name]).abs().max()) <= error for name in wanted)
