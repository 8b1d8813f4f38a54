"""A small correct program on two ranks, into which examples of collective rules put their lines."""

from __future__ import annotations

from textwrap import dedent, indent

from ddpify.rules.base import Example

_PROGRAM = """import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
{top}

def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    value = torch.tensor([rank + 1.0])
{body}
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


def on_ranks(body: str, top: str = "") -> Example:
    """The program with these lines between the start and the end of the session."""
    head = dedent(top).rstrip() + "\n" if top else ""
    text = _PROGRAM.format(top=head, body=indent(dedent(body).strip("\n"), "    "))
    return Example((("main.py", text),))
