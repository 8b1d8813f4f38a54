"""The process group and what depends on it."""

import os

import torch
import torch.distributed as dist


def device():
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return torch.device("cpu")


def start():
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()


def is_main():
    return dist.get_rank() == 0


def reduced(value):
    """The mean over the ranks."""
    dist.all_reduce(value)
    return (value / dist.get_world_size()).item()


def wait():
    dist.barrier()


def close():
    dist.destroy_process_group()
