"""Correct programs of one process per GPU, a function and a class with a helper file.

Rules on files, devices and launching make their examples by changing a line or two.
"""

from __future__ import annotations

from ddpify.rules.base import Example

PROCESS = Example(
    (
        (
            "main.py",
            """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    digits = datasets.MNIST("data", train=True, transform=transforms.ToTensor())
    sampler = DistributedSampler(digits)
    loader = DataLoader(digits, batch_size=64, sampler=sampler)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).cuda()
    model = DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images.cuda()), labels.cuda()).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            torch.save(net.state_dict(), "net.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
        ),
    ),
)

TRAINING = Example(
    (
        (
            "main.py",
            """\
import numpy as np
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import processes


class Training:
    def __init__(self, rows, gpu):
        self.gpu = gpu
        self.rank = dist.get_rank()
        self.sampler = DistributedSampler(rows)
        self.batches = DataLoader(rows, batch_size=128, sampler=self.sampler)
        self.plain = nn.Linear(64, 1).to(self.gpu)
        self.model = DDP(self.plain, device_ids=[self.gpu])
        self.optimizer = optim.AdamW(self.model.parameters())

    def run(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.batches:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(x.to(self.gpu)), y.to(self.gpu)).backward()
                self.optimizer.step()
            if self.rank == 0:
                self.save()

    def save(self):
        torch.save(self.plain.state_dict(), "plain.pt")


def main():
    gpu = processes.join()
    x, y = np.load("x.npy"), np.load("y.npy")
    Training(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), gpu).run(20)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
        ),
        (
            "processes.py",
            """\
import os

import torch
import torch.distributed as dist


def join():
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group(backend="nccl")
    return gpu
""",
        ),
    )
)
