"""Orders, and batches that come from no loader: every rank takes its share of rank 0's.

In each program the ranks draw apart once training begins, so that each of them makes other batches;
in float64 the losses that are printed show any difference. One of them has a sum beside a mean, and
a loss by a method of the model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.settings import Settings
from tests.training.alike import train_alike

pytestmark = [pytest.mark.training, pytest.mark.spread]

SLICED = """
import torch
from torch import nn

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
points = torch.randn(96, 12)
kinds = points[:, :3].argmax(1)
net = nn.DataParallel(nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3)))
descent = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for turn in range(3):
    order = torch.randperm(96)
    running, right = 0.0, 0
    for start in range(0, 96, 32):
        chosen = order[start : start + 32]
        signal, kind = points[chosen], kinds[chosen]
        kept = kind != 2
        descent.zero_grad()
        answer = net(signal)
        losses = nn.functional.cross_entropy(answer, kind, reduction="none")
        loss = (losses * kept).sum() / kept.sum()
        loss.backward()
        descent.step()
        running += loss.item()
        right += (answer.argmax(1) == kind).sum().item()
        print(f"start {start} loss {loss.item():.9f}")
    print(f"turn {turn} loss {running:.9f} accuracy {right / 96:.6f}")
torch.save(net.module.state_dict(), "net.pt")
"""

STREAMED = """
import random

import torch
from torch import nn


class Rows:
    def __init__(self, many, size):
        self.rows = [(torch.randn(5, 4), torch.randn(5, 1)) for _ in range(many)]
        self.size = size

    def batches(self):
        random.shuffle(self.rows)
        for start in range(0, len(self.rows), self.size):
            part = self.rows[start : start + self.size]
            yield torch.stack([x for x, _ in part], 1), torch.stack([y for _, y in part], 1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory, self.head = nn.GRU(4, 8), nn.Linear(8, 1)

    def forward(self, clip):
        return self.head(self.memory(clip)[0])


def main():
    random.seed(1)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    rows, model = Rows(64, 16), Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.MSELoss(reduction="sum")
    for lap in range(2):
        total = 0.0
        for number, (clip, target) in enumerate(rows.batches()):
            optimizer.zero_grad()
            loss = criterion(model(clip), target)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if number % 2 == 0:
                print(f"batch {number} loss {loss.item():.9f}")
        print(f"lap {lap} loss {total:.9f}")
    torch.save(model.state_dict(), "net.pt")


if __name__ == "__main__":
    main()
"""

LANGUAGE = """
import torch
from torch import nn

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)
layers, width, rows, length = 2, 12, 8, 5
ids = torch.randint(0, 20, (rows, 61))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, width, layers, batch_first=True)
        self.out = nn.Linear(width, 20)

    def forward(self, x, h):
        x = self.embed(x)
        out, (h, c) = self.lstm(x, h)
        out = out.reshape(out.size(0) * out.size(1), out.size(2))
        return self.out(out), (h, c)


def detach(states):
    return [state.detach() for state in states]


model = Words()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    states = (torch.zeros(layers, rows, width), torch.zeros(layers, rows, width))
    for i in range(0, ids.size(1) - length, length):
        inputs, targets = ids[:, i : i + length], ids[:, i + 1 : i + 1 + length]
        states = detach(states)
        outputs, states = model(inputs, states)
        loss = criterion(outputs, targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} at {i} loss {loss.item():.9f}")
torch.save(model.state_dict(), "net.pt")
"""

DRAWN = """
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset, WeightedRandomSampler


class Alike(Sampler):
    def __init__(self, kinds):
        self.kinds = kinds

    def __iter__(self):
        places = list(range(len(self.kinds)))
        random.shuffle(places)
        return iter(sorted(places, key=lambda place: self.kinds[place]))

    def __len__(self):
        return len(self.kinds)


class Judge(nn.Sequential):
    def score(self, signal, kind):
        return nn.functional.cross_entropy(self.forward(signal), kind)


random.seed(4)
torch.manual_seed(4)
torch.set_default_dtype(torch.float64)
points = torch.randn(70, 12)
kinds = points[:, :3].argmax(1)
rows = TensorDataset(points, kinds)
drawn = DataLoader(rows, batch_size=8, sampler=WeightedRandomSampler(torch.rand(70), 64))
alike = DataLoader(rows, 12, sampler=Alike(kinds.tolist()), drop_last=True)
net = Judge(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3))
descent = torch.optim.SGD(net.parameters(), lr=0.3)
for turn in range(3):
    running, right = 0.0, 0
    for signal, kind in drawn:
        descent.zero_grad()
        answer = net(signal)
        loss = nn.functional.cross_entropy(answer, kind) + 0.003 * answer.square().sum()
        loss.backward(retain_graph=True)
        answer.abs().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        descent.step()
        running += loss.item() * signal.size(0)
        right += (answer.argmax(1) == kind).sum().item()
    print(f"loss {running / len(drawn.sampler):.9f} accuracy {right / len(drawn.sampler):.6f}")
    for step, (signal, kind) in enumerate(alike):
        descent.zero_grad()
        loss = nn.functional.cross_entropy(net(signal), kind)
        if torch.isnan(loss) or step > 1 and loss.item() < 0.9:
            print(f"stopped at {step}")
            break
        loss.backward(retain_graph=True)
        (loss + net.score(0.9 * signal, kind)).backward()
        descent.step()
torch.save(net.state_dict(), "net.pt")
"""

COLUMNS = """
import math

import torch
from torch import nn


class Words(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.embed, self.rnn = nn.Embedding(20, 6), nn.LSTM(6, width)
        self.out = nn.Linear(width, 20)

    def forward(self, x, hidden):
        seen, hidden = self.rnn(self.embed(x), hidden)
        return self.out(seen).view(-1, 20), hidden

    def init_hidden(self, streams):
        weight = next(self.parameters())
        return weight.new_zeros(1, streams, self.width), weight.new_zeros(1, streams, self.width)


def batchify(data, streams):
    length = data.size(0) // streams
    return data.narrow(0, 0, length * streams).view(streams, -1).t().contiguous()


def get_batch(source, i):
    length = min(bptt, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].view(-1)


def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


def evaluate(source):
    hidden, total = model.init_hidden(3), 0.0
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)


torch.manual_seed(4)
torch.set_default_dtype(torch.float64)
bptt, batch_size, lr, best = 7, 8, 0.5, None
train = batchify(torch.randint(0, 20, (503,)), batch_size)
valid = batchify(torch.randint(0, 20, (100,)), 3)
model, criterion = Words(12), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
for epoch in range(2):
    hidden = model.init_hidden(batch_size)
    total = 0.0
    for number, i in enumerate(range(0, train.size(0) - 1, bptt)):
        data, targets = get_batch(train, i)
        hidden = repackage(hidden)
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if number % 3 == 2:
            print(f"batch {number} of {len(train) // bptt} ppl {math.exp(total / 3):.9f}")
            total = 0.0
    print(f"epoch {epoch} valid {evaluate(valid):.9f}")
torch.save(model.state_dict(), "net.pt")
"""

JUDGED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(1, 3, 3), nn.Conv1d(3, 1, 3)])

    def forward(self, x):
        features = list()
        for layer in self.layers:
            x = layer(x)
            features.append(x)
        return features[:-1], features[-1]


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ModuleList([Scale() for _ in range(2)])

    def forward(self, x):
        judged = list()
        for scale in self.scales:
            judged.append(scale(x))
        return judged


torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
judge = Judge()
optimizer = torch.optim.SGD(judge.parameters(), lr=0.001)
sounds = TensorDataset(torch.randn(48, 1, 12), torch.randn(48, 1, 12))
for epoch in range(2):
    for made, real in DataLoader(sounds, batch_size=8):
        loss = 0.0
        for (features, score), (wanted, _) in zip(judge(made), judge(real)):
            loss += torch.mean(torch.sum(torch.pow(score - 1.0, 2), dim=[1, 2]))
            for one, other in zip(features, wanted):
                loss += torch.mean(torch.abs(one - other))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.9f}")
torch.save(judge.state_dict(), "net.pt")
"""

THOROUGH = pytest.mark.thorough
PROGRAMS = [
    pytest.param(JUDGED, None, "        loss.backward()", id="outputs"),
    pytest.param(DRAWN, None, "order_share(Alike(kinds.tolist()), drop_last=True)", id="orders"),
    pytest.param(
        COLUMNS,
        None,
        "train = own_share(batchify(torch.randint(",
        id="side-by-side",
        marks=THOROUGH,
    ),
    pytest.param(SLICED, None, "signal, kind, kept = own_share(signal, kind, kept)", id="slices"),
    pytest.param(
        LANGUAGE, None, "inputs, targets = own_share(inputs, targets)", id="states", marks=THOROUGH
    ),
    pytest.param(
        STREAMED, 1, "clip, target = own_share(clip, target, dim=1)", id="columns", marks=THOROUGH
    ),
]


@pytest.mark.parametrize(("text", "axis", "line"), PROGRAMS)
def test_ranks_train_what_one_process_trains(
    text: str, axis: int | None, line: str, tmp_path: Path
) -> None:
    after = train_alike(text, tmp_path, Settings(batch_dim=axis))
    assert line in after
    assert after.count("average_gradients(net)\n") == after.count("answer.abs()")
