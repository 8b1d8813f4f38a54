"""Batches that a generator of the project slices: what says that their first axis is of samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.link import analyze
from ddpify.project import Project
from tests.projects import put

# Nothing but the order says where samples lie: what is done with them is not read.
PROGRAM = """import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from elsewhere import corpus, Own


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = Own()

    def forward(self, x):
        return self.own(x)


def minibatch(*tensors, **options):
    size = options.get("batch_size", 128)
    if len(tensors) == 1:
        tensor = tensors[0]
        for i in range(0, len(tensor), size):
            yield tensor[i : i + size]
    else:
        for i in range(0, len(tensors[0]), size):
            yield tuple(PART for x in tensors)


def shuffle(*arrays, **options):
    give_order = options.get("indices", False)
    order = np.arange(len(arrays[0]))
    np.random.shuffle(order)
    if len(arrays) == 1:
        result = arrays[0][order]
    else:
        result = tuple(x[ORDER] for x in arrays)
    if give_order:
        return result, order
    return result


def either(*arrays):
    order = np.random.permutation(960)
    return arrays[0][order] if len(arrays) == 1 else tuple(x[order] for x in arrays)


def pairs(data, labels, size=32):
    for i in range(0, len(data), size):
        yield data[i : i + size], labels[i : i + size]


def in_own_order(data, labels):
    order = np.random.permutation(len(data))
    AGAIN
    for i in range(0, len(data), 32):
        yield data[order[i : i + 32]], labels[order[i : i + 32]]
    MORE


def same(data):
    copy = data.long()
    return copy


class Reader:
    def batches(self, data, labels):
        for i in range(0, len(data), 32):
            yield [x[i : i + 32] for x in (data, labels)]


reader, net = Reader(), Net()
descent = torch.optim.SGD(net.parameters(), lr=0.1)
points, kinds = corpus()
for turn in range(5):
    MADE
    for BATCH in LOOP:
        TAKEN
        loss = F.cross_entropy(net(x), y)
        descent.zero_grad()
        loss.backward()
        descent.step()
"""
MADE = (
    "points, kinds = shuffle(points, kinds)\n"
    "    a, b = torch.from_numpy(points), torch.tensor(kinds)\n"
    "    a, b = a.cuda(), b.cuda()"
)
SLICED = "minibatch(a, b, batch_size=32)"

SAID = {
    "enumerated": {"BATCH": "(i, (x, y))", "LOOP": f"enumerate({SLICED})"},
    "straight": {},
    "unpacked": {"BATCH": "both", "TAKEN": "x, y = both"},
    "two-parameters": {"LOOP": "pairs(a, b)"},
    "by-keyword": {"LOOP": "pairs(labels=b, data=a)"},
    "of-an-object": {"LOOP": "reader.batches(a, b)"},
    "labels-in-order": {"LOOP": "minibatch(torch.tensor(kinds), a)"},
    "all-in-one": {"BATCH": "x", "LOOP": "minibatch(a)", "TAKEN": "y = x[:, 0]"},
    "moved-again": {"TAKEN": "x, y = x.cuda(), y.cuda()"},
    "by-an-expression": {"MADE": MADE.replace("shuffle(", "either(")},
    "in-its-own-order": {
        "MADE": "a, b = corpus()",
        "LOOP": "in_own_order(a, b)",
        "AGAIN": "order = torch.from_numpy(order)",
    },
    "through-a-function": {"LOOP": "minibatch(same(same(a)), b)"},
}
OPEN = {
    "nobody-shuffles": {"MADE": "a, b = torch.tensor(points), torch.tensor(kinds)"},
    "columns-are-shuffled": {"ORDER": ":, order"},
    "bound-anew": {"MADE": MADE + "\n    a, b = torch.tensor(corpus()[0]), torch.tensor(turn)"},
    "bound-anew-perhaps": {"MADE": MADE + "\n    if turn:\n        a, b = corpus()"},
    "shuffled-under-a-condition": {
        "MADE": "a, b = corpus()\n    if turn:\n        a, b = shuffle(a, b)"
    },
    "turned": {"PART": "x[i : i + size].t()"},
    "some-are-left-out": {"PART": "x[i : i + size]", "tensors)\n\n": "tensors if len(x))\n\n"},
    "backwards": {"tensors)\n\n": "reversed(tensors))\n\n"},
    "the-third-is-shuffled": {
        "BATCH": "x, y, _",
        "LOOP": "minibatch(torch.tensor(1), torch.tensor(2), a)",
    },
    "one-that-nobody-shuffled": {
        "BATCH": "x",
        "LOOP": "minibatch(torch.tensor(1))",
        "TAKEN": "y = x[:, 0]",
    },
    "row-of-one": {"BATCH": "x", "LOOP": "minibatch(a[0])", "TAKEN": "y = x[:, 0]"},
    "shuffled-before-it-is-made": {
        "LOOP": "in_own_order(a, b)",
        "AGAIN": "np.random.shuffle(order)\n    order = np.arange(len(data))",
    },
    "more-from-elsewhere": {"LOOP": "in_own_order(a, b)", "MORE": "yield from corpus()"},
    "rows-of-one": {"MADE": "a, b = shuffle(points)"},
    "unread-through-a-function": {"LOOP": "minibatch(same(same(corpus())), same(corpus()))"},
    "sometimes-of-one": {"LOOP": "minibatch(*((a, b) if turn else (a,)))"},
}
USUAL = {
    "MADE": MADE,
    "BATCH": "x, y",
    "LOOP": SLICED,
    "TAKEN": "pass",
    "PART": "x[i : i + size]",
    "ORDER": "order",
    "AGAIN": "",
    "MORE": "",
}


def axes_of(changed: dict[str, str], folder: Path) -> list[int]:
    text = PROGRAM
    for old, new in (changed | {k: v for k, v in USUAL.items() if k not in changed}).items():
        assert old in text
        text = text.replace(old, new)
    facts = analyze(Project.of(put({"main.py": text}, folder) / "main.py"))
    assert facts is not None
    assert facts.divisions or "along which axis" in facts.undivided[0][1]
    return [one.axis for one in facts.divisions]


@pytest.mark.parametrize("changed", SAID.values(), ids=SAID)
def test_what_is_sliced_of_shuffled_tensors_is_samples(
    changed: dict[str, str], tmp_path: Path
) -> None:
    assert axes_of(changed, tmp_path) == [0]


@pytest.mark.parametrize("changed", OPEN.values(), ids=OPEN)
def test_what_may_be_in_its_own_order_says_nothing(changed: dict[str, str], tmp_path: Path) -> None:
    assert axes_of(changed, tmp_path) == []
