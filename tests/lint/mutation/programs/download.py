"""Rank 0 of each node fetches and unpacks the data first, the others wait for the files."""

import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


@contextmanager
def first_on_node(local_rank):
    if local_rank != 0:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


def seed_all(seed):
    random.seed(seed)
    torch.manual_seed(seed)


def build(local_rank, folder="data"):
    with first_on_node(local_rank):
        data = datasets.MNIST(folder, download=True, transform=transforms.ToTensor())
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=64, sampler=sampler, num_workers=4), sampler


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    rank = dist.get_rank()
    seed_all(17)
    loader, sampler = build(local_rank)
    if rank == 0:
        os.makedirs("checkpoints", exist_ok=True)
    dist.barrier()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DistributedDataParallel(model.to(device), device_ids=[local_rank])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        correct = torch.zeros(1, device=device)
        count = torch.zeros(1, device=device)
        for images, digits in loader:
            images, digits = images.to(device), digits.to(device)
            optimizer.zero_grad()
            scores = model(images)
            nn.functional.cross_entropy(scores, digits).backward()
            optimizer.step()
            correct += (scores.argmax(1) == digits).sum()
            count += len(digits)
        dist.all_reduce(correct)
        dist.all_reduce(count)
        if rank == 0:
            print(f"epoch {epoch}: {100 * correct.item() / count.item():.1f} %")
            torch.save(model.module.state_dict(), f"checkpoints/{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
