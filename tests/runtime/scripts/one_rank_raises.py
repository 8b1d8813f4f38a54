"""Run by torchrun: rank 1 meets a bad sample while rank 0 waits for its gradients."""

from __future__ import annotations

import ddp_utils as ddp
import torch
from torch import nn


def main() -> None:
    model = ddp.wrap_model(nn.Linear(2, 1))
    for step in range(3):
        if step == 1 and ddp.get_rank() == 1:
            raise ValueError("bad sample")
        model(torch.ones(1, 2)).sum().backward()


if __name__ == "__main__":
    with ddp.distributed_session():  # torch's own timeout is 30 minutes
        main()
