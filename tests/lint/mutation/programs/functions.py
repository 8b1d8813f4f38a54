"""Functions all the way: set up, train, log the reduced loss, save once, read back everywhere."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Largest(Dataset):
    """Vectors, and which of three groups holds the largest number."""

    def __init__(self, count, width, seed):
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(count, width, generator=generator)
        self.targets = self.inputs.abs().argmax(1) % 3

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


def setup():
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    if cuda:
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    return torch.device("cpu")


def make_loader(batch_size):
    data = Largest(240, 12, seed=7)
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=batch_size, sampler=sampler), sampler


def train_epoch(model, loader, optimizer, device):
    total = torch.zeros(2, device=device)
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(inputs), len(inputs)], device=device)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main(epochs=2):
    device = setup()
    torch.manual_seed(0)
    loader, sampler = make_loader(20)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3)).to(device)
    model = DDP(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}")
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "weights.pt")
    dist.barrier()
    model.module.load_state_dict(torch.load("weights.pt", map_location=device))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
