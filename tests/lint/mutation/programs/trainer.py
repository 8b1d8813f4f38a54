"""A Trainer class; the best checkpoint is chosen by a validation loss that all ranks share."""

import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, model, train_set, valid_set, out):
        self.rank = distributed.get_rank()
        self.world = distributed.get_world_size()
        self.cuda = torch.cuda.is_available()
        if self.cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        self.device = torch.device("cuda" if self.cuda else "cpu")
        self.sampler = DistributedSampler(train_set, shuffle=True)
        self.train_loader = DataLoader(train_set, batch_size=16, sampler=self.sampler)
        share = Subset(valid_set, range(self.rank, len(valid_set), self.world))
        self.valid_loader = DataLoader(share, batch_size=16)
        self.model = DistributedDataParallel(model.to(self.device))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.out = Path(out)
        self.best = float("inf")

    @property
    def is_main(self):
        return self.rank == 0

    def train_one_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.model.train()
        for x, y in self.train_loader:
            loss = F.mse_loss(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        sums = torch.zeros(2, device=self.device)
        for x, y in self.valid_loader:
            error = F.mse_loss(self.model.module(x.to(self.device)), y.to(self.device))
            sums[0] += error * len(x)
            sums[1] += len(x)
        distributed.all_reduce(sums, op=distributed.ReduceOp.SUM)
        return (sums[0] / sums[1]).item()

    def save(self, epoch):
        state = {
            "epoch": epoch,
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, self.out / "best.pt")

    def fit(self, epochs):
        self.out.mkdir(parents=True, exist_ok=True)
        for epoch in range(epochs):
            self.train_one_epoch(epoch)
            loss = self.validate()
            if self.is_main:
                print(f"{epoch} validation {loss:.4f}")
            if loss < self.best:
                self.best = loss
                if self.is_main:
                    self.save(epoch)


class Sums(Dataset):
    def __init__(self, count, seed):
        self.rows = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return row, row.sum(0, keepdim=True)


if __name__ == "__main__":
    distributed.init_process_group()
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    Trainer(net, Sums(250, seed=0), Sums(51, seed=1), "runs/tanh").fit(2)
    distributed.destroy_process_group()
