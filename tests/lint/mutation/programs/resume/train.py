"""Training that resumes: the parts stand in three files."""

import argparse

import torch
import torch.nn.functional as F
from checkpoint import load_latest, save
from session import close, device, is_main, reduced, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build_loader():
    generator = torch.Generator().manual_seed(9)
    x = torch.rand(200, 10, generator=generator)
    data = TensorDataset(x, x.mean(1, keepdim=True))
    return DataLoader(data, batch_size=10, sampler=DistributedSampler(data))


def run(folder, epochs):
    start()
    torch.manual_seed(2)
    loader = build_loader()
    model = nn.Sequential(nn.Linear(10, 40), nn.SiLU(), nn.Linear(40, 1)).to(device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    first = load_latest(folder, model, optimizer)
    wrapped = DDP(model)
    for epoch in range(first, epochs):
        loader.sampler.set_epoch(epoch)
        total = torch.zeros(1, device=device())
        for x, y in loader:
            loss = F.mse_loss(wrapped(x.to(device())), y.to(device()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        mean = reduced(total / len(loader))
        if is_main():
            print(f"{epoch:3d} {mean:.5f}")
        save(folder, epoch, wrapped, optimizer)
    close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    run(options.folder, options.epochs)
