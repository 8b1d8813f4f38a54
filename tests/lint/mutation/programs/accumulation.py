"""Gradient accumulation: the gradients travel once per update, the last window included."""

import argparse
import contextlib
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Windows(Dataset):
    """Stretches of a long text, and the same one token later."""

    def __init__(self, path, length):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.length = length

    def __len__(self):
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, index):
        start = index * self.length
        held = torch.from_numpy(self.tokens[start : start + self.length + 1].astype(np.int64))
        return held[:-1], held[1:]


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", default="tokens.bin")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--out", default="accumulated.pt")
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(3)
    data = Windows(args.tokens, 64)
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, pin_memory=True)
    net = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 50))
    net = DDP(net.cuda(), device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for step, (inputs, targets) in enumerate(loader):
            last = step + 1 == len(loader)
            update = (step + 1) % args.accumulate == 0 or last
            window = args.accumulate
            if last and (step + 1) % args.accumulate:
                window = (step + 1) % args.accumulate
            with contextlib.nullcontext() if update else net.no_sync():
                logits = net(inputs.cuda())
                loss = criterion(logits.flatten(0, 1), targets.cuda().flatten())
                (loss / window).backward()
            if update:
                optimizer.step()
                optimizer.zero_grad()
    if dist.get_rank() == 0:
        torch.save(net.module.state_dict(), args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
