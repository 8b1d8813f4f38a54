"""A small correct program on two ranks, into which examples of gradient rules put their lines."""

from __future__ import annotations

from textwrap import dedent, indent

from ddpify.rules.base import Example

SETUP = """
model = DDP(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
_PROGRAM = """import copy
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
{top}

def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=8, sampler=sampler)
{setup}
    for epoch in range(3):
        sampler.set_epoch(epoch)
{loop}
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
NET = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())
"""


def trained(setup: str = SETUP, loop: str = LOOP, top: str = "") -> Example:
    """The program with another set-up, another epoch, and more at the top."""
    text = _PROGRAM.format(
        top=dedent(top).rstrip() + "\n" if top else "",
        setup=indent(dedent(setup).strip("\n"), "    "),
        loop=indent(dedent(loop).strip("\n"), "        "),
    )
    return Example((("main.py", text),))
