"""Trains in one process, or with DDP under torchrun; words on the command line change how."""

import contextlib
import os
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WORDS = sys.argv[1:]
STEPS = 4


def model():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 600), nn.BatchNorm1d(600), nn.ReLU(), nn.Linear(600, 2))
    net[3].bias.requires_grad_("frozen" not in WORDS)
    return net


def stop_in(place, i):
    if place in WORDS and i == 1:
        threading.Event().wait()


def train():
    rank = dist.get_rank() if dist.is_initialized() else 0
    net = model()
    if dist.is_initialized():
        net = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(24, 4), torch.randint(2, (24,)))
    sampler = DistributedSampler(data, seed=1) if dist.is_initialized() else None
    loader = DataLoader(data, 3 if sampler else 6, shuffle=sampler is None, sampler=sampler)
    for i, (x, y) in enumerate(loader):
        stop_in(f"forward-of-{rank}", i)
        skip = "accumulate" in WORDS and i % 2 == 0
        with net.no_sync() if skip else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(net(x), y)
            stop_in(f"backward-of-{rank}", i)
            loss.backward()
        if not skip:
            optimizer.step()
            optimizer.zero_grad()
    if dist.is_initialized():
        total = torch.ones(3)
        dist.all_reduce(total)
        with torch.no_grad():
            net(x)
    print("trained", rank)
    return net


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    try:
        net = train()
        torch.save(net.state_dict(), "model.pt")
    except Exception:
        print("an exception")
        raise
    finally:
        print("at last")
    if "fail" in WORDS:
        raise ValueError("first line\nsecond line")
    if "vanish" in WORDS:
        os._exit(0)
    if dist.is_initialized() and "open" not in WORDS:
        dist.destroy_process_group()
