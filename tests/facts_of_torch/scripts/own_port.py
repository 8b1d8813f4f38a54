"""Writes a port of its own over the one of torchrun."""

import os
from datetime import timedelta

import torch.distributed as dist

if __name__ == "__main__":
    os.environ["MASTER_PORT"] = "29"  # nobody listens there
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
