"""What a loss is to the samples of its batch: where it is a mean, and the nearest that is none.

A loss that is wrongly called a mean trains something else without a word, so every operation that
is followed has a row in which the batch axis is reduced, or is no longer the first one.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from ddpify.facts.roles import backwards
from ddpify.facts.values import Kind, Measure
from tests.facts.marks import facts_of

PROGRAM = """import collections
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
    def forward(self, x):
        return self.body(x)
class Pair(Net):
    def forward(self, x):
        return self.body(x), x
class Named(Net):
    def forward(self, x):
        outputs = collections.namedtuple("Outputs", ["deep", "flat"])
        made = outputs(self.body(x), x)
        return made
class Maybe(Net):
    def forward(self, x):
        return (self.body(x), x) if self.training else self.body(x)
class Old(nn.Module):
    def __init__(self, average=True):
        super().__init__()
        self.inner = nn.NLLLoss2d(None, average, 255)
    def forward(self, out, y):
        return self.inner(F.log_softmax(out, dim=1), y)
class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep, self.off = nn.Linear(4, 4), nn.MSELoss()
        for p in self.deep.parameters():
            p.requires_grad = False
    def forward(self, a, b):
        return self.off(self.deep(a), self.deep(b))
class Weights(Features):
    def __init__(self):
        nn.Module.__init__(self)
        self.deep, self.off = nn.Linear(4, 4), nn.MSELoss()
        for p in [*self.deep.parameters()][:1]:
            p.requires_grad = False
features, weights = Features(), Weights()
net, pair, named, maybe, summed = Net(), Pair(), Named(), Maybe(), Old(False)
optimizer = torch.optim.SGD([*net.parameters(), *pair.parameters(), *named.parameters(),
                             *maybe.parameters()], lr=0.1)
rows = TensorDataset(torch.rand(8, 4, 4), torch.zeros(8, 4).long(), torch.ones(8).long())
fixed = torch.rand(99, 4, 4)
for x, y, lengths in DataLoader(rows, 2):
    out = net(x)
{body}
    loss.backward()
    optimizer.step()
"""
MEAN, SUM, RATIO, MIXED = Measure.MEAN, Measure.SUM, Measure.RATIO, Measure.MIXED
PENALTY = """mix = (x * 2).requires_grad_(True)
slope = torch.autograd.grad({}, mix, {}create_graph=True)[0]
loss = ((slope.view(slope.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()"""


def measure(body: str, folder: Path) -> Measure:
    """The measure of what `backward` is called on, before a count is made that of all ranks."""
    facts = facts_of(PROGRAM.format(body=indent(body, "    ")), folder)
    (call,) = {call.site: call for call in backwards(facts.calls)}.values()
    assert call.receiver is not None
    if call.receiver.dep(Kind.AVERAGED):
        return MIXED  # a mean of what the ranks have, whatever that is
    return RATIO if facts.shares else call.receiver.measure


ROWS = [
    ("mean-of-norms", "loss = torch.norm(out, dim=(1, 2)).mean()", MEAN),
    ("norms-of-the-batch", "loss = torch.norm(out, dim=(0, 2)).mean()", MIXED),
    ("norm-of-all", "loss = out.norm()", MIXED),
    ("norm-by-method", "loss = out.norm(2, dim=1).mean()", MEAN),
    ("norm-along-the-batch", "loss = out.norm(2, dim=0).mean()", MIXED),
    ("norm-along-the-last", "loss = out.norm(2, dim=-1).mean()", MIXED),  # of a vector: the batch
    ("norm-of-the-turned", "loss = out.transpose(0, 1).norm(dim=1).mean()", MIXED),
    ("norm-of-the-swapped", "loss = out.transpose(2, 1).norm(dim=1).mean()", MEAN),
    ("norm-of-the-permuted", "loss = out.permute(0, 2, 1).norm(dim=1).mean()", MEAN),
    ("norm-of-the-wrongly-permuted", "loss = out.permute(1, 0, 2).norm(dim=1).mean()", MIXED),
    ("spread-in-samples", "loss = out.var(1).mean()", MEAN),
    ("spread-in-the-batch", "loss = out.var(0).mean()", Measure.UNIFORM),  # gathered
    ("sums-in-samples", "loss = out.sum(1).mean()", MEAN),
    ("sums-of-the-turned", "loss = out.t().sum(1).mean()", MIXED),
    ("sums-of-the-transposed", "loss = out.T.sum(1).mean()", MIXED),
    ("sums-of-the-lifted", "loss = out.unsqueeze(0).sum(1).mean()", MIXED),
    ("sums-of-the-lifted-by-index", "loss = out[None].sum(1).mean()", MIXED),
    ("sums-behind-a-new-axis", "loss = out.unsqueeze(1).sum(1).mean()", MEAN),
    ("sums-in-another-view", "loss = out.view(4, -1).sum(1).mean()", MIXED),
    ("sums-in-rows", "loss = out.view(out.size(0), -1).sum(1).mean()", MEAN),
    ("largest-of-the-turned", "loss = out.transpose(0, 1).max(1)[0].mean()", MIXED),
    ("all-of-the-turned", "loss = out.transpose(0, 1).mean()", MEAN),
    ("first-sample", "loss = out[0, :].mean()", MIXED),
    ("first-column", "loss = out[:, 0].mean()", MEAN),
    ("grams", "loss = torch.bmm(out, out.transpose(2, 1)).mean()", MEAN),
    ("grams-of-the-turned", "loss = torch.bmm(out, out.transpose(1, 0)).mean()", MIXED),
    (
        "off-the-unit",
        "unit = torch.eye(4)[None]\nloss = (out.bmm(x) - unit).norm(dim=1).mean()",
        MEAN,
    ),
    (
        "off-on-a-device",
        "u = torch.eye(4)\nif out.is_cuda:\n    u = u.cuda()\nloss = (out - u).mean()",
        MEAN,
    ),
    ("times-constants", "loss = (out @ torch.eye(4)).mean()", MEAN),
    ("product-over-the-batch", "loss = (x.t() @ out).mean()", MIXED),
    ("product-with-samples", "loss = (out @ x).mean()", MIXED),
    ("head-of-constants", "n = len(x)\nloss = F.mse_loss(out, fixed[:n, :])", MEAN),
    ("other-rows-of-constants", "n = len(x)\nloss = (out * fixed[n:]).mean()", MIXED),
    ("shape-of-outputs", "loss = (out * torch.ones(out.shape)).mean()", MEAN),
    ("like-outputs", "loss = (out - torch.ones_like(out)).mean()", MEAN),
    ("penalty", PENALTY.format("net(mix)", "torch.ones_like(x), "), MEAN),
    ("penalty-of-a-sum", PENALTY.format("net(mix).sum()", ""), MEAN),
    ("penalty-of-a-mean", PENALTY.format("net(mix).mean()", ""), MIXED),
    ("first-output", "loss = F.mse_loss(pair(x)[0], x)", MEAN),
    ("output-by-name", "loss = F.mse_loss(named(x).deep, x)", MEAN),
    ("each-output", "loss = 0.0\nfor each in pair(x):\n    loss += F.mse_loss(each, x)", MEAN),
    ("first-of-what", "loss = F.mse_loss(maybe(x)[0], x)", MIXED),
    ("sums-by-class", "loss = summed(out, y) / x.size(0)", MEAN),
    ("sum-by-class", "loss = summed(out, y)", SUM),
    ("sum-over-a-constant", 'loss = F.cross_entropy(out, y, reduction="sum") / 10', SUM),
    ("switched-off-by-place", "loss = nn.CrossEntropyLoss(None, False)(out, y)", SUM),
    ("switched-off-in-a-function", "loss = F.cross_entropy(out, y, None, False)", SUM),
    ("switched-off-plainly", "loss = nn.MSELoss(False)(out, x)", SUM),
    ("switched-by-a-setting", "loss = nn.MSELoss(size_average=len(rows) > 9)(out, x)", MIXED),
    ("not-reduced", "loss = nn.MSELoss(reduce=False)(out, x).mean()", MEAN),
    ("ignored-by-place", "loss = nn.CrossEntropyLoss(None, True, 3)(out, y)", RATIO),
    ("powers", "loss = torch.pow(out - x, 2).sum() / x.size(0)", MEAN),
    ("frozen-features", "loss = features(out, x)", MEAN),
    ("features-that-may-learn", "loss = weights(out, x)", Measure.SAMPLES),  # not read: DDP401
    (
        "packed",
        "to = pack_padded_sequence(y, lengths, True)[0]\nloss = F.cross_entropy(out, to)",
        RATIO,
    ),
    (
        "packed-lengths",
        "to = pack_padded_sequence(y, lengths, True)[1]\nloss = F.cross_entropy(out, to)",
        MIXED,
    ),
]


@pytest.mark.parametrize(("body", "wanted"), [pytest.param(b, w, id=i) for i, b, w in ROWS])
def test_a_mean_is_known_for_certain(body: str, wanted: Measure, tmp_path: Path) -> None:
    assert measure(body, tmp_path) is wanted
