"""The mean of a loss that a model computes is that loss still: a sum, or a mean over some targets.

`loss = net(x, y).mean()` is written for `nn.DataParallel`, which gathers a loss from each replica;
ranks do the same with it. In one process without it the loss stays what the model has made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.roles import backwards
from ddpify.facts.values import Kind, Measure
from tests.facts.marks import facts_of

PROGRAM = """import torch.nn.functional as F
class Net(nn.Module):
    def __init__(self, off=None):
        super().__init__()
        self.body, self.off = nn.Linear(4, 4), off
class Own(Net):
    def forward(self, x, y):
        return F.cross_entropy(self.body(x)[y > 0], y[y > 0], reduction="sum")
class Outer(Net):
    def __init__(self):
        super().__init__()
        self.own = Own()
    def forward(self, x, y):
        return self.own(x, y) * 2
class Method(Net):
    def forward(self, x, y):
        return x, self.cost(self.body(x), y)
    def cost(self, out, y):
        return (out[y > 0] - 1).abs().sum()
class Given(Net):
    def forward(self, x, y):
        return x, self.off(self.body(x)[y > 0])
class Held(Net):
    def forward(self, x, y):
        return x, self.off(torch.cat((self.body(x), y), 1), y)
class Pairs(Net):
    def forward(self, x, y):
        return self.body(torch.cat((x, y), 1))
class Recon(Net):
    def forward(self, x):
        out = self.body(x)
        total = F.mse_loss(out, x, reduction="sum") - 0.5 * torch.sum(out)
        return total
class Apart(Net):
    def forward(self, x):
        return (self.body(x) - x).square().sum(1)
class Critic(Net):
    def forward(self, x):
        return self.body(x).mean()
net = {}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.rand(8, 4), torch.zeros(8, 4)), 2):
    loss = {}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MEAN, SUM, MIXED = Measure.MEAN, Measure.SUM, Measure.MIXED
ROWS = {
    "a loss of its own": ("Own()", "net(x, y).mean()", SUM),
    "along an axis that it has not": ("Own()", "torch.mean(net(x, y), 0)", MIXED),
    "summed": ("Own()", "net(x, y).sum()", SUM),
    "as its replicas compute it": ("nn.DataParallel(Method())", "net(x, y)[1].mean()", MEAN),
    "a loss of a part": ("Outer()", "net(x, y).mean()", SUM),
    "a loss of a method": ("Method()", "net(x, y)[1].mean()", SUM),
    "a criterion that it is given": ("Given(hardest)", "net(x, y)[1].mean()", MIXED),
    "a layer that it is given": ("Held(nn.Linear(8, 4))", "net(x, y)[1].mean()", MEAN),
    "a layer that makes a loss": ("Held(Own())", "net(x, y)[1].mean()", MIXED),
    "a score of each pair": ("Pairs()", "net(x, y).mean()", MEAN),
    "a sum over what it is given alone": ("Recon()", "net(x).mean()", SUM),
    "a loss of each sample": ("Apart()", "net(x).mean()", MEAN),
    "a critic's mean": ("Critic()", "net(x).mean()", MEAN),
    "scores of pairs, summed": ("Pairs()", "net(x, y).sum()", SUM),
}


@pytest.mark.parametrize(("net", "loss", "wanted"), ROWS.values(), ids=ROWS)
def test_what_a_model_computes_is_not_made_a_mean(
    net: str, loss: str, wanted: Measure, tmp_path: Path
) -> None:
    facts = facts_of(PROGRAM.format(net, loss), tmp_path)
    (call,) = {call.site: call for call in backwards(facts.calls)}.values()
    assert call.receiver is not None
    averaged = bool(call.receiver.dep(Kind.AVERAGED))  # whatever the ranks have
    assert (MIXED if averaged else call.receiver.measure) is wanted
