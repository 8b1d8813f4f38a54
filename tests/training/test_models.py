"""Models of which a step leaves out parts: ranks train what one process does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.settings import Settings
from tests.training.alike import train_alike

pytestmark = [pytest.mark.training, pytest.mark.spread]

# The last of `others` and one of `graphs` get no gradient, and DDP raises without the flag.
PASSED_BY = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


class Waves(nn.Module):
    def __init__(self, graph=False):
        super().__init__()
        self.graph = graph
        self.skips = nn.ModuleList()
        self.others = nn.ModuleList()
        self.graphs = nn.ModuleList()
        for _ in range(3):
            self.skips.append(nn.Linear(6, 6))
            self.others.append(nn.Linear(6, 6))
            self.graphs.append(nn.Linear(6, 6))

    def forward(self, x):
        skip = x
        for i in range(3):
            skip = skip + torch.tanh(self.skips[i](x))
            x = self.graphs[i](x) if self.graph else self.others[i](x)
        return skip


net = Waves()
rows = DataLoader(TensorDataset(torch.randn(40, 6), torch.randn(40, 6)), 8)
descent = torch.optim.SGD(net.parameters(), lr=0.1)
for turn in range(2):
    for signal, wanted in rows:
        descent.zero_grad()
        loss = LOSS
        loss.backward()
        descent.step()
        print(f"loss {loss.item():.9f}")
torch.save(net.state_dict(), "net.pt")
"""
SHARES = "(net(signal) - wanted).square().mean()"
WHOLE = "((net(signal) - wanted).std() + (net(signal).sum(0) * wanted.sum(0)).tanh().std())"

# Models in a dict, a list, an attribute's dict, and some that are there only if they are asked for.
HELD = """
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
wide = "wide" in sys.argv


class Pair:
    def __init__(self):
        self.models = {}
        self.weights = []
        self.models["one"] = nn.Linear(6, 6)
        self.weights += list(self.models["one"].parameters())
        if not wide:
            self.models["two"] = nn.Linear(6, 6)
            self.weights += list(self.models["two"].parameters())

    def run(self, x):
        for model in self.models.values():
            model.train()
        x = torch.tanh(self.models["one"](x))
        if not wide:
            x = x + self.models["two"](x)
        return x


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


def through(model, x):
    return torch.tanh(model(x))


core, other = nn.Linear(6, 6), nn.Linear(6, 6)
best = other
nets = {"front": nn.Linear(6, 6), "back": nn.Linear(6, 6)}
chain = []
for _ in range(3):
    chain.append(nn.Linear(6, 6))
weights = [weight for net in (*nets.values(), *chain) for weight in net.parameters()]
head = None
if wide:
    head = nn.Linear(6, 6)
    weights += list(head.parameters())
tail = None if wide else nn.Linear(6, 6)
if tail is not None:
    weights += list(tail.parameters())
if len(sys.argv) > 2:
    last = nn.Linear(6, 6)
elif wide:
    last = nn.Sequential(nn.Linear(6, 6))
else:
    last = None
if last is not None:
    weights += list(last.parameters())
pair = Pair()
rows = DataLoader(TensorDataset(torch.randn(40, 6), torch.randn(40, 6)), 8)
weights += [*core.parameters(), *other.parameters()]
descent = torch.optim.SGD(weights + pair.weights, lr=0.1)
around = Around(core)
for turn in range(2):
    for signal, wanted in rows:
        descent.zero_grad()
        x = torch.tanh(nets["front"](signal))
        for part in chain:
            x = x + torch.tanh(part(x))
        x = pair.run(nets["back"](x))
        if head is not None:
            x = head(x)
        if tail is not None:
            x = tail(x)
        if last is not None:
            x = last(x)
        x = through(model=other, x=around(x))
        loss = (x - wanted).square().mean()
        loss.backward()
        descent.step()
        print(f"loss {loss.item():.9f}")
held = {f"{k}.{n}": v for k, net in nets.items() for n, v in net.state_dict().items()}
for number, part in enumerate(chain):
    held.update({f"{number}.{n}": v for n, v in part.state_dict().items()})
held.update(pair.models["one"].state_dict())
held.update({f"best.{n}": v for n, v in best.state_dict().items()})
held.update({f"core.{n}": v for n, v in core.state_dict().items()})
torch.save(held, "net.pt")
"""
HOMES = (
    "nets = {key: wrap_model(model) for key, model in nets.items()}",
    "chain = [wrap_model(model) for model in chain]",
    'self.models["one"] = wrap_model(self.models["one"])\n',
    '            self.models["two"] = wrap_model(self.models["two"])\n',
    "    head = wrap_model(head)\n",
    "\naround = wrap_model(around)\n",
    "\nother = wrap_model(other)\n",
    "if tail is not None:\n    tail = wrap_model(tail)\n",
    "\n    last = nn.Linear(6, 6)\n    last = wrap_model(last)\nelif wide:\n",
)

# What an instance norm keeps is a mean over samples: of rank 0's only, were nothing done about it.
NORMED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
net = nn.Sequential(
    nn.Conv1d(2, 4, 3),
    nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
    nn.Conv1d(4, 2, 1),
)
rows = DataLoader(TensorDataset(torch.randn(40, 2, 7), torch.randn(40, 2, 5)), 8)
descent = torch.optim.SGD(net.parameters(), lr=0.1)
for turn in range(2):
    net.train()
    for signal, wanted in rows:
        descent.zero_grad()
        loss = (net(signal) - wanted).square().mean()
        loss.backward()
        descent.step()
        print(f"loss {loss.item():.9f}")
    net.eval()
    total = 0.0
    with torch.no_grad():
        for signal, wanted in rows:
            total += (net(signal) - wanted).square().mean().item()
    print(f"after {turn} {total / len(rows):.9f}")
torch.save(net.state_dict(), "net.pt")
"""


def test_what_instance_norms_keep_is_of_the_whole_batch(tmp_path: Path) -> None:
    after = train_alike(NORMED, tmp_path, Settings())
    assert "net = average_statistics(wrap_model(net))\n" in after


def test_models_in_containers_and_branches_are_wrapped_where_they_are(tmp_path: Path) -> None:
    after = train_alike(HELD, tmp_path, Settings())
    assert [home for home in HOMES if home not in after] == []


@pytest.mark.parametrize("loss", [SHARES, WHOLE], ids=["shares", "whole"])
def test_parts_that_a_forward_passes_by_end_no_job(loss: str, tmp_path: Path) -> None:
    after = train_alike(PASSED_BY.replace("LOSS", loss), tmp_path, Settings())
    assert "find_unused_parameters=True)" in after
    assert ("split_batches(" in after) == (loss is WHOLE)


# Each model steps itself.
STEPPED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


class Stepped(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.descent = torch.optim.Adam(self.parameters(), lr=0.1)

    def forward(self, x):
        return torch.tanh(self.body(x))


net = Stepped()
rows = DataLoader(TensorDataset(torch.randn(40, 6), torch.randn(40, 6)), 8)
for turn in range(2):
    for signal, wanted in rows:
        net.descent.zero_grad()
        loss = (net(signal) - wanted).square().mean()
        loss.backward()
        net.descent.step()
        print(f"loss {loss.item():.9f}")
torch.save(net.state_dict(), "net.pt")
"""


def test_a_model_that_keeps_its_optimizer_is_stepped_by_it(tmp_path: Path) -> None:
    assert "unwrap(net).descent.step()" in train_alike(STEPPED, tmp_path, Settings())
