"""FSDP2: blocks and root sharded, resumed from rank 0's file, saved full by rank 0."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Mixer(nn.Module):
    def __init__(self, width=16, depth=2, classes=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def shard(model):
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def weight_norm(model):
    squares = [p.square().sum().full_tensor() for p in model.parameters()]
    return torch.stack(squares).sum().sqrt().item()


def save(model, optimizer, path):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    moments = get_optimizer_state_dict(model, optimizer, options=options)
    if dist.get_rank() == 0:
        torch.save({"model": weights, "optimizer": moments}, path)


def restore(model, path):
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    weights = torch.load(path, map_location="cpu")["model"] if dist.get_rank() == 0 else {}
    set_model_state_dict(model, weights, options=options)


def main():
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 16), torch.randint(0, 3, (96,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = shard(Mixer().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        norm = weight_norm(model)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: norm {norm:.3f}")
    save(model, optimizer, "sharded.pt")
    restore(model, "sharded.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
