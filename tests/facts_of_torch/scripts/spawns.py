"""Started by torchrun, and starts a process for each of two devices again."""

from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=10))
    total = torch.ones(1)
    dist.all_reduce(total)
    print("sum", total.item(), flush=True)


if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
