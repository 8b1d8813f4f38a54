"""A small program to start, its present launch line, and commands that stand for a cluster's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ddpify import cli
from tests.support import warm

TRAIN = """\
import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--name", default="run")
    parser.add_argument("--resume-from", default="")
    args = parser.parse_args()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(2):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print("trained", args.name, args.lr)


if __name__ == "__main__":
    main()
"""
SCRIPT = 'LR=0.05\npython main.py --lr $LR --name "my run" --seed $1\n'
# In place of a program that trains: who takes part, and with which arguments.
RANKS = """\
import datetime
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
total = torch.ones(1)
dist.all_reduce(total)
place = [os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"], str(int(total))]
sys.stdout.write("ranks " + " ".join([*place, *sys.argv[1:]]) + "\\n")
sys.stdout.flush()
dist.destroy_process_group()
"""


def project(folder: Path, **files: str) -> Path:
    """A project with one program, and these files (``a__b_sh`` is ``a/b.sh``)."""
    texts = {"requirements.txt": "torch\n", "main.py": TRAIN}
    texts |= {name.replace("__", "/").replace("_sh", ".sh"): text for name, text in files.items()}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def migrate(folder: Path, *flags: str) -> int:
    """`ddpify migrate --inplace` there."""
    return cli.main(["migrate", str(folder / "main.py"), "--inplace", *flags])


def commands(folder: Path, texts: Mapping[str, str]) -> str:
    """PATH with these commands in front."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


TORCHRUN = f'#!/bin/bash\nexec {warm.python()} -m torch.distributed.run "$@"\n'


def bash(
    folder: Path, *words: str, timeout: float = 60, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run bash there."""
    return subprocess.run(
        ["bash", *words],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
