"""A loss among what a model returns, in one of its returns or under a key: which call returns what.

What the arguments of a call decide is followed; what nothing decides may be either.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.roles import backwards
from ddpify.facts.values import Kind, Measure
from tests.facts.marks import facts_of

PROGRAM = """import sys
import torch.nn.functional as F
def collate(items):
    return torch.stack([x for x, _ in items]), None if sys.argv[1:] else torch.zeros(len(items))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
    def forward(self, x, y=None):
        out = self.body(x)
{}
class Alike(Net):
    def forward(self, x, y=None):
        return {{"loss": F.mse_loss(self.body(x), y)}}
class Summed(Net):
    def forward(self, x, y=None):
        return {{"out": x, "loss": F.mse_loss(self.body(x), y, reduction="sum")}}
class Compared(Net):
    def forward(self, x, y=None):
        out = self.body(x)
        return {{"out": x, "loss": F.cross_entropy(out @ out.t(), torch.arange(len(x)))}}
net = {}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.rand(8, 4), torch.rand(8, 4))
for x, y in {}:
    given = {}
    optimizer.zero_grad()
    given{}.backward()
    optimizer.step()
"""
MEAN = "F.mse_loss(out, y)"
EARLY = "        if y is None: return out\n        return out, "
SOME = "        res = {'out': out}\n        if y is not None:\n            res['loss'] = "
KEYED = f"{SOME}{MEAN}\n        return res"
LOADER, CALL, LOSS = "DataLoader(data, 2)", "net(x, y)", "['loss']"
COLLATED, UNCOLLATED = (
    "DataLoader(data, 2, collate_fn=collate)",
    "DataLoader(data, batch_size=None)",
)
PERHAPS = "net(x, y if sys.argv[1:] else None)"
CHOSEN = "Net() if sys.argv[1:] else {}()"
SUM = "F.mse_loss(out, y, reduction='sum')"
PAIRS = "F.cross_entropy(out @ out.t(), torch.arange(len(x)))"
Case = tuple[str, str, str, str, str]


def case(
    body: str, loss: str = LOSS, net: str = "Net()", loader: str = LOADER, call: str = CALL
) -> Case:
    return body, net, loader, call, loss


FOLLOWED = {
    "an early return": case(f"{EARLY}{MEAN}", "[1]"),
    "a key that is there with targets": case(KEYED),
    "two classes alike": case(KEYED, net=CHOSEN.format("Alike")),
}
UNKNOWN = {
    "a sum": case(f"{EARLY}{SUM}", "[1]"),
    "a sum under a key": case(KEYED.replace(MEAN, SUM)),
    "targets that may be None": case(f"{EARLY}{MEAN}", "[1]", loader=COLLATED),
    "whatever a data set gives": case(f"{EARLY}{MEAN}", "[1]", loader=UNCOLLATED),
    "targets that may be left out": case(f"{EARLY}{MEAN}", "[1]", call=PERHAPS),
    "another class sums": case(KEYED, net=CHOSEN.format("Summed")),
    "a mean of what another class sums": case(KEYED, f"{LOSS}.mean()", CHOSEN.format("Summed")),
    "another class compares": case(KEYED, net=CHOSEN.format("Compared")),
    "the first class compares": case(KEYED.replace(MEAN, PAIRS), net=CHOSEN.format("Alike")),
    "pairs further inside": case(f"        return {{'all': {{'l': {PAIRS}}}, 'loss': {MEAN}}}"),
}


def is_mean(changes: Case, tmp_path: Path) -> bool:
    facts = facts_of(PROGRAM.format(*changes), tmp_path)
    (call,) = {call.site: call for call in backwards(facts.calls)}.values()
    loss = call.receiver
    assert loss is not None
    return loss.measure is Measure.MEAN and not loss.dep(Kind.AVERAGED)


@pytest.mark.parametrize("changes", FOLLOWED.values(), ids=FOLLOWED)
def test_a_mean_is_found_where_it_is_returned(changes: Case, tmp_path: Path) -> None:
    assert is_mean(changes, tmp_path)


@pytest.mark.parametrize("changes", UNKNOWN.values(), ids=UNKNOWN)
def test_what_may_be_another_loss_is_none(changes: Case, tmp_path: Path) -> None:
    assert not is_mean(changes, tmp_path)
