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

PROGRAM = """import argparse
import collections
import random
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
class Scales(Net):
    def forward(self, x):
        out = self.body(x)
        if self.training:
            return out, out[:, :2], out[:, :1]
        else:
            return out
class Asked(Net):
    def __init__(self, both, config):
        super().__init__()
        self.both = both
        self.other = config.other
        self.third = config.third
        self.third = True
    def forward(self, x):
        if self.both:
            return self.body(x), x
        if not self.other:
            return self.body(x)
        return self.body(x), x
class Old(nn.Module):
    def __init__(self, average=True):
        super().__init__()
        self.inner = nn.NLLLoss2d(None, average, 255)
    def forward(self, out, y):
        return self.inner(F.log_softmax(out, dim=1), y)
parser = argparse.ArgumentParser()
parser.add_argument("--both", action="store_true")
parser.add_argument("--other", action="store_true")
args = parser.parse_args()
class Critic(Net):
    def forward(self, x):
        if x.is_cuda:
            scores = nn.parallel.data_parallel(self.body, x, [0])
        else:
            scores = self.body(x)
        scores = scores.mean(0)
        return scores.view(1)
class Whole(Net):
    def forward(self, x):
        return torch.mean(self.body(x).view(-1))
class Steps(Net):
    def forward(self, x):
        return self.body(x).mean(0)
class Some(Net):
    def forward(self, x):
        scores = self.body(x)
        scores = scores[scores > 0]
        return scores.mean()
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
asked = Asked(args.both, args)
optimizer = torch.optim.SGD([*net.parameters(), *pair.parameters(), *named.parameters(),
                             *maybe.parameters(), *asked.parameters()], lr=0.1)
rows = TensorDataset(torch.rand(8, 4, 4), torch.zeros(8, 4).long(), torch.ones(8).long())
fixed = torch.rand(99, 4, 4)
for x, y, lengths in DataLoader(rows, 2):
    out = net(x)
{body}
    loss.backward()
    optimizer.step()
"""
MEAN, SUM, RATIO, MIXED = Measure.MEAN, Measure.SUM, Measure.RATIO, Measure.MIXED
ENTRY = Measure.ENTRY  # not followed
FIRST = "loss = asked(x)[0].mean()"
EACH = """rows = []
for row in out:
    {}
loss = torch.{}.mean()"""
EITHER = """if random.random() < 0.5:
        rows.append({})
    else:
        rows.append(row[None])"""
TURNED, STEPS = "o = out.transpose(0, 1)\n", "hs = [net(x) for t in range(3)]\n"
GROWN = "ls = []\nfor o in pair(x):\n    ls.append(F.mse_loss(o, x))\n"
NORMAL = "loss = torch.distributions.Normal(out, out.exp())"
DIVERGENCE = """import torch.distributions as D
q = D.Normal(out, out.exp())
loss = D.kl_divergence"""
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
    if facts.pooled:
        return MIXED  # whatever it is, each rank computes that of the whole batch
    return RATIO if facts.shares else call.receiver.measure


SIDES = "b = next(iter(DataLoader(rows{})))[0]\nloss = net(torch.cat(b, 1)).mean()"
OF = "\nif isinstance(c, {}):\n    loss = out.sum()\nelse:\n    loss = c(out, x)"
ROWS = [
    ("of-another-class", f"c = nn.MSELoss(){OF.format('nn.L1Loss')}", MEAN),
    ("of-no-class-of-these", f"c = nn.MSELoss(){OF.format('(nn.L1Loss, Net)')}", MEAN),
    ("of-one-of-these", f"c = nn.MSELoss(){OF.format('(nn.L1Loss, nn.MSELoss)')}", Measure.SUM),
    ("of-a-base", f"c = nn.MSELoss(){OF.format('nn.Module')}".replace("sum", "norm"), MIXED),
    (
        "of-one-perhaps",
        f"c = nn.MSELoss() if args.both else nn.L1Loss(){OF.format('nn.L1Loss')}".replace(
            "sum", "norm"
        ),
        MIXED,
    ),
    (
        "of-one-of-a-table",
        "c = {'a': nn.MSELoss, 'b': nn.L1Loss}[args.mode]()"
        f"{OF.format('nn.L1Loss')}".replace("sum", "norm"),
        MIXED,
    ),
    ("by-keyword", "loss = F.mse_loss(input=out, target=x)", MEAN),
    (
        "terms-by-keyword",
        "loss = F.mse_loss(input=out, target=x, reduction='none').sum(-1).mean()",
        MEAN,
    ),
    ("sums-by-keyword", "loss = F.mse_loss(input=out, target=x, reduction='sum')", Measure.SUM),
    ("along-the-batch-by-keyword", "loss = F.log_softmax(input=out, dim=0).sum(1).mean()", MIXED),
    ("mean-of-norms", "loss = torch.norm(out, dim=(1, 2)).mean()", MEAN),
    ("of-each-number", "loss = (torch.log1p(out.sin().logit()) - y.sign()).mean()", MEAN),
    ("less-a-mean-by-method", "loss = out.sub(x.mean(0)).pow(2).mean()", MIXED),
    ("by-others-in-a-function", "loss = torch.where(out > 0, out, x.mean(0)).mean()", MIXED),
    ("by-each-by-method", "loss = out.sub(x).mul(y.sum(1).float()[:, None]).mean()", MEAN),
    (
        "weighted-by-the-batch",
        "w = torch.Tensor([1 / s for s in x.mean(0)]).to(args.both)\nloss = out.mul(w).mean()",
        MIXED,
    ),
    ("of-each-number-then-sums", "loss = torch.log1p(out).erf().sum()", Measure.SUM),
    ("norms-of-the-batch", "loss = torch.norm(out, dim=(0, 2)).mean()", MIXED),
    ("norm-of-all", "loss = out.norm()", MIXED),
    ("norm-by-method", "loss = out.norm(2, dim=1).mean()", MEAN),
    ("norm-along-the-batch", "loss = out.norm(2, dim=0).mean()", MIXED),
    ("norm-along-the-last", "loss = out.norm(2, dim=-1).mean()", MEAN),  # of a vector: the batch
    ("norm-of-the-turned", "loss = out.transpose(0, 1).norm(dim=1).mean()", MIXED),
    ("norm-of-the-swapped", "loss = out.transpose(2, 1).norm(dim=1).mean()", MEAN),
    ("norm-of-the-permuted", "loss = out.permute(0, 2, 1).norm(dim=1).mean()", MEAN),
    ("norm-of-the-wrongly-permuted", "loss = out.permute(1, 0, 2).norm(dim=1).mean()", MIXED),
    ("spread-in-samples", "loss = out.var(1).mean()", MEAN),
    ("spread-in-the-batch", "loss = out.var(0).mean()", Measure.UNIFORM),  # gathered
    ("sums-in-samples", "loss = out.sum(1).mean()", MEAN),
    ("sums-of-the-turned", "loss = out.t().sum(1).mean()", MIXED),
    ("sums-of-the-transposed", "loss = out.T.sum(1).mean()", MIXED),
    ("sums-of-the-lifted", "loss = out.unsqueeze(0).sum(1).mean()", SUM),
    ("sums-before-the-lifted", "loss = out.unsqueeze(0).sum(0).mean()", MEAN),
    ("steps-first", f"{STEPS}loss = torch.stack(hs).sum(0).mean()", MEAN),
    ("steps-first-over-the-batch", f"{STEPS}loss = torch.stack(hs).sum(1).mean()", SUM),
    ("steps-behind", f"{STEPS}loss = torch.stack(hs, dim=1).sum(1).mean()", MEAN),
    ("steps-first-turned", f"{STEPS}loss = torch.stack(hs).transpose(1, 0).sum(1).mean()", MEAN),
    ("steps-kept", f"{STEPS}loss = torch.stack(hs).mean(0, keepdim=True).sum(1).mean()", SUM),
    ("steps-with-samples", f"{STEPS}loss = (torch.stack(hs) + out).sum(1).mean()", MIXED),
    ("columns-side-by-side", f"{STEPS}loss = torch.cat(hs, dim=1).sum(1).mean()", MEAN),
    ("turned-and-back", "loss = out.permute(1, 0, 2).permute(1, 0, 2).sum(1).mean()", MEAN),
    ("sums-over-steps", f"{TURNED}loss = o.sum(0).mean()", MEAN),
    ("sums-over-the-batch", f"{TURNED}loss = o.sum(1).mean()", SUM),
    ("number-of-steps", f"{TURNED}loss = o.sum() / o.size(0)", SUM),
    ("number-of-samples", f"{TURNED}loss = o.sum() / o.shape[1]", MEAN),
    ("last-step", f"{TURNED}loss = o[-1].sum(1).mean()", MEAN),
    ("first-sample-of-steps", f"{TURNED}loss = o[:, 0].mean()", MIXED),
    ("in-another-order", "x = x[lengths.sort(0, descending=True)[1]]\nloss = net(x).mean()", MEAN),
    ("ordered-by-a-function", "x = x[torch.argsort(-lengths)]\nloss = net(x).mean()", MEAN),
    ("ordered-by-outputs", "i = torch.sort(out[:, 0, 0])[1]\nloss = out[i].mean()", MIXED),
    ("some-of-an-order", "i = torch.sort(lengths)[1]\nloss = out[i[:1]].mean()", MIXED),
    ("ordered-itself", "loss = (out[:, 0, 0] - torch.sort(lengths)[0]).mean()", MIXED),
    ("likelihood", f"{NORMAL}.log_prob(x).sum(-1).mean()", MEAN),
    ("likelihood-in-all", f"{NORMAL}.log_prob(x).sum()", SUM),
    ("divergence", f"{DIVERGENCE}(q, D.Normal(0, 1)).sum(1).mean()", MEAN),
    ("steps-drawn", "t = torch.randint(0, 9, (len(x),))\nloss = (fixed[t] * out).mean()", MEAN),
    ("old-name", "loss = F.mse_loss(out, x, reduction='elementwise_mean')", MEAN),
    ("masked-steps", "t, o = y.t(), out.transpose(0, 1)\nloss = o[t > 0].mean()", RATIO),
    ("list-that-grows", f"{GROWN}loss = torch.stack(ls).sum()", MEAN),
    ("sums-of-the-lifted-by-index", "loss = out[None].sum(1).mean()", MIXED),
    ("sums-behind-a-new-axis", "loss = out.unsqueeze(1).sum(1).mean()", MEAN),
    ("sums-in-another-view", "loss = out.view(4, -1).sum(1).mean()", MIXED),
    ("sums-in-rows", "loss = out.view(out.size(0), -1).sum(1).mean()", MEAN),
    ("largest-of-the-turned", "loss = out.transpose(0, 1).max(1)[0].mean()", MIXED),
    ("all-of-the-turned", "loss = out.transpose(0, 1).mean()", MEAN),
    ("first-sample", "loss = out[0, :].mean()", MIXED),
    ("row-by-row", EACH.format("rows.append(row)", "stack(rows)"), MEAN),
    ("row-by-row-behind", EACH.format("rows.append(row)", "stack(rows, 1).sum(1)"), ENTRY),
    ("parts-of-rows", EACH.format("rows.append(row)", "cat(rows)"), RATIO),
    ("one-row-or-another", EACH.format(EITHER.format("row[None].clone()"), "cat(rows)"), MEAN),
    ("one-row-or-two", EACH.format(EITHER.format("row.view(2, 1, -1)"), "cat(rows)"), ENTRY),
    ("some-rows", EACH.format("if x.is_cuda: rows.append(row[None])", "cat(rows)"), ENTRY),
    ("first-where-two", f"loss = out.mean()\nif args.both:\n    {FIRST}", MEAN),
    ("first-where-one", f"loss = out.mean()\nif not args.both:\n    {FIRST}", MIXED),
    ("first-where-the-other", f"loss = out.mean()\nif args.other:\n    {FIRST}", MEAN),
    ("first-where-not-the-other", f"loss = out.mean()\nif not args.other:\n    {FIRST}", MIXED),
    (
        "first-after-a-change",
        f"loss = out.mean()\nargs.both = x.is_cuda\nif args.both:\n    {FIRST}",
        MIXED,
    ),
    ("like-another", "loss = (out * torch.ones(4).type_as(out)).mean()", MEAN),
    ("what-it-is", "loss = out.mean()\nif torch.is_tensor(out):\n    loss = loss * 2", MEAN),
    ("first-column", "loss = out[:, 0].mean()", MEAN),
    ("own-entry", "loss = -out[range(len(y)), y].sum() / len(y)", MEAN),
    ("own-entry-by-a-tensor", "loss = out[torch.arange(len(y)).cuda(), y].mean()", MEAN),
    ("own-entry-of-some", "loss = out[range(2), y].mean()", MIXED),
    ("own-entry-from-the-second", "loss = out[range(1, len(y)), y].mean()", MIXED),
    ("picked-entries", "loss = out[range(len(y)), y[y > 0]].mean()", MIXED),
    ("entry-of-the-turned", "loss = out.t()[range(len(y)), y].mean()", MIXED),
    ("entry-along-the-second-axis", "loss = out[y, range(len(y))].mean()", MIXED),
    ("as-before-python-3", "x = iter(DataLoader(rows, 2)).next()[0]\nloss = net(x).mean()", MEAN),
    ("batch-by-method", "x = iter(DataLoader(rows, 2)).__next__()[0]\nloss = net(x).mean()", MEAN),
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
    ("largest-by-name", "loss = out.max(dim=1)[0].mean()", MEAN),
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
    ("of-an-own-class", "class Own(nn.CrossEntropyLoss): pass\nloss = Own()(out, y)", MEAN),
    (
        "weighed-in-an-own-class",
        "class Own(nn.CrossEntropyLoss): pass\nloss = Own(torch.ones(3))(out, y)",
        MIXED,
    ),
    ("powers", "loss = torch.pow(out - x, 2).sum() / x.size(0)", MEAN),
    ("frozen-features", "loss = features(out, x)", MEAN),
    ("features-that-may-learn", "loss = weights(out, x)", MEAN),
    (
        "scales-while-it-trains",
        "loss = 0\nfor o, w in zip(Scales()(x), [1, 2]):\n    loss += w * o.sum() / x.size(0)",
        MEAN,
    ),
    ("pooled", "loss = F.mse_loss(F.adaptive_max_pool2d(out, 2), F.avg_pool2d(x, 2))", MEAN),
    ("what-kind", "if type(out) not in (tuple, list):\n    n = 1\nloss = out.mean() * n", MEAN),
    ("side-by-side", SIDES.format(""), MEAN),
    ("side-by-side-by-a-function", SIDES.format(", collate_fn=list"), MIXED),
    ("mean-in-a-model", "loss = Critic()(x)", MEAN),
    ("mean-of-two-calls", "critic = Critic()\nloss = critic(x) - critic(out)", MEAN),
    ("mean-of-all-in-a-model", "loss = Whole()(x)", MEAN),
    ("mean-along-steps-perhaps", "loss = Steps()(x)", Measure.SAMPLES),  # DDP401
    ("mean-of-some-in-a-model", "loss = Some()(x)", Measure.SAMPLES),  # DDP401
    ("filled", "b = torch.ones(1)\nb.resize_as_(x).copy_(x)\nloss = (b * out).mean()", MEAN),
    ("filled-data", "b.data.resize_(x.size()).copy_(x)\nloss = F.mse_loss(out, b)", MEAN),
    ("filled-classes", "b.resize_(y.shape).copy_(y)\nloss = F.cross_entropy(out, b)", MEAN),
    ("filled-with-a-sum", "b.resize_as_(x).copy_(x)\nloss = b.sum()", SUM),
    ("sized-then-drawn", "b.data.resize_(x.size(0), 4)\nb.data.normal_()\nloss = b.sum()", SUM),
    (
        "another-order",
        "import numpy\nloss = F.cross_entropy(out, y[numpy.random.permutation(y.size(0))])",
        MEAN,
    ),
    (
        "drawn-twice",
        "import numpy\nloss = F.cross_entropy(out, y[numpy.random.permutation(9)[:4]])",
        MIXED,
    ),
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


def test_a_mask_by_a_method_is_counted(tmp_path: Path) -> None:
    body = "each, to = pair(x)\nm = to.ne(0)\nloss = each.masked_select(m).sum() / m.sum()"
    facts = facts_of(PROGRAM.format(body=indent(body, "    ")), tmp_path)
    assert [facts.text(share.site) for share in facts.shares] == ["m.sum()"]
