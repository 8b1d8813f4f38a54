"""Everything observe.py must see or leave alone that the digits scripts do not have."""

import os
import sys
import tempfile

import helper_beside_the_script
import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.eye(4)


def passes(loader, count):
    return [[int(i) for batch in loader for i in batch] for _ in range(count)]


def read():
    data = list(range(11))
    shuffled = DataLoader(data, batch_size=4, shuffle=True)
    print("lengths", len(shuffled), len(shuffled.sampler))
    print("shuffled", passes(shuffled, 2))
    print("cut", passes(DataLoader(data, batch_size=4, shuffle=True, drop_last=True), 1))
    drawn = RandomSampler(data, replacement=True, num_samples=3)
    print("drawn", len(drawn), len(list(drawn)))
    workers = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)
    print("workers", passes(workers, 2))
    list(DataLoader(Stream(), batch_size=2))
    print("state", int(torch.randint(2**40, ())))


def write():
    os.makedirs("made/deep", exist_ok=True)
    with open("made/part", "w") as file:
        file.write("x")
    os.replace("made/part", "made/whole")
    os.remove("made/whole")
    open(__file__).close()
    with tempfile.TemporaryFile() as outside:
        outside.write(b"x")
    torch.save({"weight": torch.full((2,), 0.5)}, f="made/weights.pt")
    print("kept", torch.load("made/weights.pt")["weight"][1].item())


def compute():
    layer = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(2, 3)).sum().backward()
    optimizer.step()


def repeat():
    """Which layers give the same twice, and the same as in evaluation?"""
    data = torch.arange(24.0).reshape(4, 2, 3)
    layers = {
        "dropout": nn.Dropout(0.5),
        "channels": nn.Dropout1d(0.5),
        "recurrent": nn.LSTM(3, 4, num_layers=2, dropout=0.5),
        "attention": nn.TransformerEncoderLayer(3, 1, 4, dropout=0.5),
        "batch-norm": nn.BatchNorm1d(2),
    }
    for name, layer in layers.items():
        trained = layer.train()(data)
        evaluated = layer.eval()(data)
        first, second = (x[0] if isinstance(x, tuple) else x for x in (trained, evaluated))
        print("neutral", name, torch.allclose(first, second, atol=1e-6))


print("argv", sys.argv, "beside", helper_beside_the_script.NAME, "main", __name__)
torch.manual_seed(2**31 + 5)
print("seed", torch.initial_seed() % 2**31)
single = numpy.ones(2, dtype="float32")
made = (torch.ones(2), torch.from_numpy(single), torch.ones(2).half().float())
print("dtype", *(tensor.dtype for tensor in made))
read()
write()
compute()
repeat()
sys.exit(3)
