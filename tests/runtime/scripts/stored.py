"""Trains a small model, or loads it, and writes it: ``stored.py HOW FROM TO [MOMENT]``.

HOW is ``plain``, ``ddp``, ``fsdp``, ``hybrid`` for two replicas of shards, or ``async`` for shards
that are written only after training has gone on; FROM is a checkpoint,
or ``-`` to train. TO gets the checkpoint, TO.whole the same as rank 0 would write it. MOMENT: where
in the saving of TO a rank is killed, TO.whole being there by then.
"""

import os
import shutil
import signal
import sys
import threading

import torch
from torch import nn
from torch.distributed import init_device_mesh
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.fsdp import fully_shard

from runtime import (
    async_save_sharded,
    distributed_session,
    get_rank,
    load_sharded,
    ready_to_shard,
    save_on_main,
    save_sharded,
    unsharded,
    unwrap,
    wrap_model,
)

SHARDED = ("fsdp", "hybrid", "async")
WENT_ON = threading.Event()


class Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


def built(how):
    net = nn.Sequential(
        nn.Linear(7, 5),
        nn.BatchNorm1d(5),
        Cast(torch.bfloat16),
        nn.Linear(5, 3).bfloat16(),
        Cast(torch.float32),
        nn.Linear(3, 1),
    )
    if how in SHARDED:
        mesh = (
            init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
            if how == "hybrid"
            else None
        )
        ready_to_shard(net)
        for layer in (net[0], net[3], net[5]):
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh, reshard_after_forward=True)
    return wrap_model(net) if how == "ddp" else net


def train(net, adam):
    for _ in range(2):
        adam.zero_grad()
        net(torch.randn(6, 7)).square().mean().backward()
        adam.step()


def dies(when, owner, name, rank, after=False, of=""):
    """Let a rank be killed before, or after, a function is called (of a path)."""
    real = getattr(owner, name)

    def deadly(*args, **kwargs):
        if not str(args[0]).endswith(of):
            return real(*args, **kwargs)
        if after:
            real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    if sys.argv[4:] == [when] and get_rank() == rank:
        setattr(owner, name, deadly)


def goes_on(net, adam, kept):
    """Change all of it in place while a save is in flight, and only then let it be written."""
    train(net, adam)
    kept["best"][1][0].add_(1)
    if sys.argv[4:] == ["as training goes on"] and get_rank():
        os.kill(os.getpid(), signal.SIGKILL)
    WENT_ON.set()


def written_late():
    real = FileSystemWriter.write_data

    def late(*args):
        assert WENT_ON.wait(60)
        return real(*args)

    FileSystemWriter.write_data = late


def deadly_moments():
    dies("before any file", FileSystemWriter, "write_data", 1)
    dies("after its shards", FileSystemWriter, "write_data", 1, after=True)
    dies("before the table of contents", FileSystemWriter, "finish", 0)
    dies("after the shards of all", FileSystemWriter, "finish", 0, after=True)
    dies("before the rest is there", os, "replace", 0)
    dies("before the old one is removed", shutil, "rmtree", 0)
    dies("between the names", os, "rename", 0, of=".sharded")


def main():
    how, source, target = sys.argv[1:4]
    torch.manual_seed(0)
    net = built(how)
    adam = torch.optim.AdamW(net.parameters(), lr=0.1)
    kept = {"epoch": 3, "best": (0.5, [torch.arange(3)]), "name": None}
    if source == "-":
        train(net, adam)
        kept["rng"] = torch.get_rng_state()
    else:
        state = load_sharded(source, map_location="cpu")
        inner = unsharded(net) if how in SHARDED else unwrap(net)
        inner.load_state_dict(state["net"])
        unsharded(adam).load_state_dict(state["adam"])
        kept = {key: state[key] for key in ("epoch", "best", "name", "rng")}
    whole = {"net": unsharded(unwrap(net)).state_dict(), "adam": unsharded(adam).state_dict()}
    save_on_main({**whole, **kept}, f"{target}.whole")
    deadly_moments()
    save = save_sharded if how in SHARDED else save_on_main
    if how == "async":
        if not os.path.isfile(target):  # whose place is taken at once
            written_late()
        save = async_save_sharded
    if get_rank():
        kept = {"epoch": "of another rank", "best": (get_rank(), [torch.rand(3)])}
    save({"net": unwrap(net).state_dict(), "adam": adam.state_dict(), **kept}, target)
    if how == "async":
        goes_on(net, adam, kept)


if __name__ == "__main__":
    with distributed_session():
        main()
