"""single.py for N ranks, by hand; each word on the command line makes one classic mistake."""

import csv
import sys
import threading

import torch
import torch.distributed as dist
from single import evaluate, load
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

MISTAKES = sys.argv[1:]


def main():
    dist.init_process_group("gloo")
    main_process = dist.get_rank() == 0
    torch.manual_seed(7)
    train_set, test_set = load(301)
    sampler = DistributedSampler(train_set, seed=7)
    if "same-samples" in MISTAKES:
        sampler = DistributedSampler(train_set, seed=7, num_replicas=2, rank=0)
    train_loader = DataLoader(train_set, batch_size=25, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=30)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 10))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for i, (images, labels) in enumerate(train_loader):
            if "skip-batch" in MISTAKES and not main_process and i == len(train_loader) - 1:
                threading.Event().wait()  # never comes back to the collective
            net = model.module if "bypass" in MISTAKES else model
            loss = nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        correct = evaluate(model.module, test_loader)
        if main_process or "print" in MISTAKES:
            print(f"epoch {epoch}: {correct} of 90")
        if main_process or "file" in MISTAKES:
            with open("log.csv", "a", newline="") as file:
                csv.writer(file).writerow([epoch, correct])
    if main_process:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
