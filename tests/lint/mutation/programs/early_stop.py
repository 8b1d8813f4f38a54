"""Early stopping: rank 0 looks at the whole validation set, all ranks hear what it decides."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Patience:
    def __init__(self, limit):
        self.limit = limit
        self.best = None
        self.waited = 0

    def enough(self, value):
        if self.best is None or value < self.best:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.limit


def validation_loss(net, x, y):
    net.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(net(x), y).item()
    net.train()
    return loss


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(5)
    x = torch.randn(320, 4)
    y = (x**2).sum(1, keepdim=True)
    data = TensorDataset(x[:256], y[:256])
    sampler = DistributedSampler(data, seed=5)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    net = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    ddp = DDP(net)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)
    patience = Patience(2)
    stop = torch.zeros(1)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for inputs, wanted in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(ddp(inputs), wanted).backward()
            optimizer.step()
        if rank == 0:
            loss = validation_loss(ddp.module, x[256:], y[256:])
            print(f"epoch {epoch}: {loss:.4f}")
            if patience.enough(loss):
                stop.fill_(1)
        dist.broadcast(stop, src=0)
        if stop.item() > 0:
            break
    if rank == 0:
        torch.save(ddp.module.state_dict(), "stopped.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
