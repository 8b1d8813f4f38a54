"""Saves in the background, and does something else while that is in flight: ``in_flight.py WHAT``.

WHAT is ``load``, ``save``, ``end`` or ``raise``; with a second argument rank 1 cannot write.
``last.pt`` is there from before, as epoch 0.
"""

import os
import sys
import time

import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.fsdp import fully_shard

from runtime import (
    async_save_sharded,
    broadcast,
    distributed_session,
    get_rank,
    load_sharded,
    save_sharded,
    unsharded,
)


def slow_disk():
    real = FileSystemWriter.write_data

    def slow(*args):
        time.sleep(0.5)
        if sys.argv[2:] and get_rank() == 1:
            raise OSError("the disk is full")
        return real(*args)

    FileSystemWriter.write_data = slow


def fill(net, number):
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(number)


def save_epoch(net, number, save=async_save_sharded, path="last.pt"):
    fill(net, number)
    save({"net": net.state_dict(), "epoch": number}, path)
    fill(net, -1)


def main():
    net = nn.Linear(3, 5)
    fully_shard(net, reshard_after_forward=True)
    save_epoch(net, 0, save_sharded)
    slow_disk()
    save_epoch(net, 1)
    if sys.argv[1] == "load":
        kept = load_sharded("last.pt")
        assert kept["epoch"] == 1
        unsharded(net).load_state_dict(kept["net"])
        assert set(net.weight.full_tensor().flatten().tolist()) == {1.0}
    elif sys.argv[1] == "save":
        save_epoch(net, 2)
        save_epoch(net, 3, path="other.pt")
        save_epoch(net, 4)
        save_epoch(net, 5, path="new.pt")
        broadcast(None)
        assert os.path.exists("new.pt")
    elif sys.argv[1] == "raise" and get_rank():
        raise ValueError("in the script")
    print("went on")


if __name__ == "__main__":
    with distributed_session():
        main()
