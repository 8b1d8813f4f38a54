"""One process that does all an observer has to see or leave alone; prints what it can tell."""

import atexit
import os
import random
import sys
import tempfile
import warnings

import helper_beside_the_script
import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)


class Stream(IterableDataset):
    def __iter__(self):
        yield from torch.eye(4)


class Noisy(Dataset):
    """Augments with every stream there is; each sample also has a name."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        noise = random.random() + numpy.random.rand() + torch.rand(()).item()
        return {"x": torch.tensor([float(index), noise]), "name": f"sample {index}"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 3, sparse=True)
        self.first = nn.Linear(3, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x, scale=1.0):
        inner = checkpoint(self.first, self.embedding(x), use_reentrant=True)
        return {"loss": None, "logits": inner * scale}


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
    alone = DistributedSampler(data, num_replicas=1, rank=0, seed=3)
    alone.set_epoch(2)
    print("alone", len(alone), list(alone))
    workers = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)
    print("workers", passes(workers, 2))
    list(DataLoader(Stream(), batch_size=2))
    part = Subset(Subset(TensorDataset(torch.arange(10), torch.eye(10)), range(1, 9)), [5, 3, 1])
    list(DataLoader(part, batch_size=2))
    with torch.no_grad():
        print("evaluated", passes(DataLoader(data, batch_size=4), 1))
    hand_made = DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 4, False))
    print("batches", [len(batch) for batch in hand_made], DataLoader(data).batch_size)
    print("state", int(torch.randint(2**40, ())))


def augment():
    before = random.getstate()
    for workers in (0, 2):
        loader = DataLoader(Noisy(), 3, num_workers=workers, persistent_workers=workers > 0)
        for number in range(2):
            noise = [value for batch in loader for value in batch["x"][:, 1].tolist()]
            print(f"noise {workers} {number}", noise)
    print("moved", random.getstate() != before)


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


def train_net():
    """Sparse and absent gradients; two optimizers, one of which calls a closure."""
    net, calls = Net(), []
    sparse = torch.optim.SGD(net.parameters(), lr=0.5)
    loss = net(torch.tensor([1, 2]), scale=2.0)["logits"].sum()
    loss.backward()
    print("loss", loss.item())
    sparse.step()
    print("values", [parameter.sum().item() for parameter in net.parameters()])
    loose = torch.ones(2, requires_grad=True)
    lbfgs = torch.optim.LBFGS([loose], lr=0.1, max_iter=3)

    def closure():
        calls.append(1)
        lbfgs.zero_grad()
        value = (loose**4).sum()
        value.backward()
        return value

    lbfgs.step(closure)
    print("calls", len(calls))


def train_together():
    """Two models with the same names in one optimizer; a scaler that skips a step."""
    left, right = nn.Linear(2, 1), nn.Bilinear(2, 2, 1, bias=False)
    groups = [{"params": left.parameters()}, {"params": right.parameters(), "lr": 0.25}]
    optimizer = torch.optim.SGD([*groups, {"params": [torch.ones(1, requires_grad=True)]}], lr=1)
    other = torch.optim.SGD([left.weight, nn.Linear(2, 1).weight], lr=1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(left(torch.ones(1, 2)).sum() * factor).backward()
        scaler.step(other)
        scaler.update()
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
    with torch.no_grad():
        nn.Dropout(0.5)(data)  # does not count: nothing is trained
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2)).eval())
    print("scripted", tuple(scripted(data).shape))


class Late:
    """Lives as long as the script's names do: until the interpreter goes."""

    def __init__(self):
        atexit.register(lambda: print("late", type(sys.modules["__main__"].late).__name__))


if __name__ == "__main__":
    late = Late()
    print("argv", sys.argv, "beside", helper_beside_the_script.NAME, "main", __name__)
    print("file", os.path.isabs(__file__), sys.modules["__main__"].late is late)
    print("foreign", [name for name in sys.modules if name.startswith("ddpify")])
    torch.manual_seed(2**31 + 5)
    numpy.random.seed(5)
    random.seed(5)
    print("seed", torch.initial_seed() % 2**31)
    single = numpy.ones(2, dtype="float32")
    made = (torch.ones(2), torch.from_numpy(single), torch.ones(2).half().float())
    print("dtype", *(tensor.dtype for tensor in made))
    read()
    write()
    train_net()
    train_together()
    repeat()
    augment()
    print("drawn after", F.dropout(torch.ones(3), 0.5).tolist(), torch.rand(1).item())
    sys.exit(3)
