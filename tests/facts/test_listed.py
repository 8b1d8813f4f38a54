"""What a model returns: who loops over its outputs does not loop over the samples of a batch.

A sum over samples is multiplied by the number of ranks, as DDP averages. A sum over the outputs of
a model must not be: N times the gradient is trained without a word.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.roles import backwards
from ddpify.facts.values import Kind, Measure
from tests.facts.marks import facts_of

PROGRAM = """class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.out = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        return self.up(x), self.out(x)
class Levels(nn.Module):
    def forward(self, xs):
        return [x * 2 for x in xs]
class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.stages = nn.ModuleList()
        for _ in range(2):
            self.stages.append(Stage())
        self.levels = Levels()
        self.other = build(4)
    def every(self, x):
        found = list()
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return found
    def forward(self, x):
{forward}
model = Judge()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.rand(8, 4)), 2):
    fake, real, loss = model(x), model(x + 1), 0.0
{body}
    loss.backward()
    optimizer.step()
"""
MEAN, SUM, MIXED = Measure.MEAN, Measure.SUM, Measure.MIXED
EACH = "    for f, r in zip(fake, real):\n        loss += (f - r).abs().mean()"
PAIRS = (
    "    for (f, s), (r, _) in zip(fake, real):\n        loss += (f - r).abs().mean() + s.mean()"
)
NESTED = """    for one, two in zip(fake, real):
        for f, r in zip(one, two):
            loss += (f - r).abs().mean()"""
FIRST = "    loss = (fake[0] - real[-1]).abs().mean()"
PARTS = """    (fs, f), (rs, r) = fake, real
    for a, b in zip(fs, rs):
        loss += (a - b).abs().mean()"""
GROWN = """        outs = {}
        for {}:
            outs.append({})
        return {}"""
ROWS = """        outs = []
        for i in range(x.size(0)):
            outs.append(self.layers[0](x[i]))
        return outs"""


@pytest.mark.parametrize(
    ("forward", "body", "wanted"),
    [
        (GROWN.format("list()", "layer in self.layers", "layer(x)", "outs"), EACH, MEAN),
        (GROWN.format("[]", "i in range(3)", "self.layers[i](x)", "outs"), EACH, MEAN),
        (GROWN.format("[x]", "y in self.every(x)", "y * 2", "tuple(outs)"), EACH, MEAN),
        (
            GROWN.format("[]", "i, layer in enumerate(self.layers)", "layer(x)", "outs[1:]"),
            EACH,
            MEAN,
        ),
        (GROWN.format("[]", "y, l in zip(self.every(x), self.layers)", "l(y)", "outs"), EACH, MEAN),
        ("        return self.every(x)", EACH, MEAN),
        ("        return self.levels(self.every(x))", EACH, MEAN),
        ("        layers = self.layers\n        return [layer(x) for layer in layers]", EACH, MEAN),
        ("        return self.layers[0](x).chunk(2, 1)", EACH, MEAN),
        ("        return torch.split(self.layers[0](x), 2, dim=1)", EACH, MEAN),
        ("        return [self.every(x), [x, x]]", NESTED, MEAN),
        ("        return self.every(x), self.layers[0](x)", PARTS, MEAN),
        ("        found = self.every(x)\n        return found[:-1], found[-1]", PARTS, MEAN),
        (GROWN.format("[]", "stage in self.stages", "stage(x)", "outs"), PAIRS, MEAN),
        ("        return self.every(x)", FIRST, MEAN),
        # of these nobody can say it: what is not read may give a tensor or a list
        (GROWN.format("[]", "y in self.other(x)", "y", "outs"), EACH, MIXED),
        (GROWN.format("[]", "n in range(3)", "self.other(x)", "outs"), NESTED, MIXED),
        ("        return self.layers[0](x).chunk(2)", EACH, MIXED),
        ("        return list(map(self.other, x))", EACH, MIXED),
        (
            "        if self.other.both:\n            return [x, x]\n        return x * 2",
            EACH,
            MIXED,
        ),
        # and these are of the samples
        ("        return self.layers[0](x)", EACH, SUM),
        ("        return torch.stack(self.every(x))[0]", EACH, SUM),
        (ROWS, EACH, SUM),
    ],
)
def test_outputs_are_no_samples(forward: str, body: str, wanted: Measure, tmp_path: Path) -> None:
    facts = facts_of(PROGRAM.format(forward=forward, body=body), tmp_path)
    (call,) = backwards(facts.calls)
    assert call.receiver is not None
    unknown = bool(call.receiver.dep(Kind.AVERAGED) or facts.pooled)  # DDP401 says so, or gathers
    assert (MIXED if unknown else call.receiver.measure) is wanted
