"""Batches of no known loader: what is divided before the model is called, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.link import analyze
from ddpify.facts.model import Facts
from ddpify.pipeline import migrate
from ddpify.project import Project
from ddpify.settings import Settings
from tests.projects import put

PROGRAM = """import argparse
import random
import sys
import numpy as np
import torch
from torch import nn
from elsewhere import corpus, read

points, kinds, size = corpus()
net = nn.Linear(12, 3)
criterion = nn.CrossEntropyLoss()
descent = torch.optim.SGD(net.parameters(), lr=0.1)
weights = torch.ones(3)


many = torch.utils.data.TensorDataset(points, kinds)
options = argparse.ArgumentParser()
options.add_argument("--deep", action="store_true")
options.add_argument("--wide", action="store_true")
args = options.parse_args()
right = 0


def tell(*words):
    sys.stdout.write(" ".join(map(str, words)))


def apply(model, x):
    return model(x)


def pair(start):
    return points[start : start + 32], kinds[start : start + 32].view(-1)


for turn in range(5):
    for i in range(0, 960, 32):
        BODY
        descent.zero_grad()
        loss.backward()
        descent.step()
"""
SLICES = "x = points[i : i + 32]\ny = kinds[i : i + 32]\n"
CALL = "loss = criterion(net(x), y)"

DIVIDED = [
    pytest.param(SLICES + CALL, ("x", "y"), id="slices"),
    pytest.param(
        SLICES + "out = net(x.view(-1, 12))\nloss = criterion(out, y)", ("x", "y"), id="view"
    ),
    pytest.param(SLICES + "loss = (net(x) - y).pow(2).mean()", ("x", "y"), id="by-hand"),
    pytest.param(SLICES + "print(i)\n" + CALL, ("x", "y"), id="printed-number"),
    pytest.param(
        SLICES + "kept = y > 0\nlosses = []\nlosses.append(criterion(net(x), y) * kept)\n"
        "loss = sum(losses)",
        ("x", "y", "kept"),
        id="through-a-list",
    ),
    pytest.param("x, y = read(i)\n" + CALL, ("x", "y"), id="unpacked"),
    pytest.param(
        SLICES + "if args.deep:\n    out = net(x)\nelif args.wide:\n    out = net(x.view(-1, 12))\n"
        "loss = criterion(out, y)",
        ("x", "y"),
        id="by-an-option",
    ),
    pytest.param(
        SLICES + CALL + "\nright = right + (net(x).argmax(1) == y).sum()\n"
        "tell('%d of %s' % (right, criterion.weight))",
        ("x", "y"),
        id="told-with-a-count",
    ),
    pytest.param(SLICES + "x, y = map(torch.tensor, (x, y))\n" + CALL, ("x", "y"), id="mapped"),
    pytest.param(SLICES + "y = y.view(-1)\n" + CALL, ("x", "y"), id="flattened-here"),
    pytest.param(
        SLICES
        + "if size:\n    x, y = x.cuda(), y.cuda().view(-1)\nelse:\n    y = Vector(y)\n"
        + CALL,
        ("x", "y"),
        id="moved-or-raises",
    ),
]
LEFT = [
    pytest.param(
        "for x, y in read(i):\n    pass\n" + CALL, "`x` is carried over", id="last-of-a-loop"
    ),
    pytest.param("loss = criterion(net(points), kinds)", "`points`", id="full-batch"),
    pytest.param(SLICES + "loss = criterion(net(x, points), y)", "`points`", id="graph"),
    pytest.param(SLICES + "loss = criterion(net(x), kinds[i : i + 32])", "`i`", id="late-slice"),
    pytest.param(SLICES + "loss = criterion(net(x).view(size, i), y)", "`i`", id="shape"),
    pytest.param(
        SLICES + "h = read(h) if turn else None\nout, h = net(x, h)\nloss = criterion(out, y)",
        "`h` is carried over",
        id="state",
    ),
    pytest.param("x = read(i)\nloss = criterion(net(x.text), x.label)", "`x` is no", id="object"),
    pytest.param("x = read(i)\nloss = criterion(net(x[0]), x[1])", "`x` is no", id="container"),
    pytest.param(
        SLICES + "w = np.random.beta(1, 1)\nloss = criterion(net(x), y) * w", "drawn", id="drawn"
    ),
    pytest.param(
        SLICES + "x = apply(net, x)\nloss = criterion(net(x), y)", "its body calls no", id="helper"
    ),
    pytest.param("x, y = pair(i)\n" + CALL, "flattened", id="flattened"),
    pytest.param("x, y = many[i]\n" + CALL, "one sample of a data set", id="sample"),
    pytest.param(
        SLICES + "if random.random() < 0.1:\n    break\n" + CALL, "how many batches", id="drawn-end"
    ),
    pytest.param(
        SLICES + "if turn:\n    out = net(x)\nloss = criterion(out, y)",
        "`out` is carried over",
        id="in-some-passes",
    ),
]


def facts_of(body: str, folder: Path, asked: int | None) -> Facts:
    text = PROGRAM.replace("BODY", body.replace("\n", "\n        "))
    entry = put({"main.py": text}, folder) / "main.py"
    facts = analyze(Project.of(entry), batch_dim=asked)
    assert facts is not None
    return facts


@pytest.mark.parametrize(("body", "names"), DIVIDED)
def test_what_each_pass_makes_and_the_loss_needs_is_divided(
    body: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    facts = facts_of(body, tmp_path, 0)
    assert [one.names for one in facts.divisions] == [names], facts.undivided
    assert not facts.undivided


@pytest.mark.parametrize(("body", "why"), LEFT)
def test_what_may_be_of_samples_and_cannot_be_divided_is_named(
    body: str, why: str, tmp_path: Path
) -> None:
    facts = facts_of(body, tmp_path, 0)
    assert not facts.divisions
    assert [why in reason for _, reason in facts.undivided] == [True], facts.undivided


def test_an_axis_is_not_guessed(tmp_path: Path) -> None:
    body = SLICES + "loss = criterion(net(x)[-1], y)"
    facts = facts_of(body, tmp_path, None)
    assert not facts.divisions
    assert "--batch-dim" in facts.undivided[0][1]


GENERATOR = """

def batches():
    BODY


for turn in range(5):
    for x, y in batches():
        loss = criterion(net(x), y)
"""
ORDER = "order = np.random.permutation(len(points))\n"
PASSES = "for i in range(0, MANY, 32):\n    here = order[i : i + 32]\n"
PASSES += "    yield points[here], kinds[here]"


@pytest.mark.parametrize(
    ("body", "divided"),
    [
        pytest.param(ORDER + PASSES.replace("MANY", "len(order)"), True, id="order"),
        pytest.param(
            ORDER + "at = 0\nwhile at < len(points):\n    here = order[at : at + 32]\n"
            "    yield points[here], kinds[here]\n    at += 32",
            True,
            id="while",
        ),
        pytest.param(ORDER + PASSES.replace("MANY", "order[0]"), False, id="entry"),
        pytest.param(ORDER + PASSES.replace("MANY", "random.randrange(960)"), False, id="drawn"),
        pytest.param(
            ORDER + "for i in range(30):\n    if random.random() < 0.1:\n        return\n"
            "    yield points[order[i:]], kinds[order[i:]]",
            False,
            id="drawn-end",
        ),
    ],
)
def test_a_generator_counts_by_its_own_loops(body: str, divided: bool, tmp_path: Path) -> None:
    head, _, rest = PROGRAM.partition("\n\nfor turn")
    made = GENERATOR.replace("BODY", body.replace("\n", "\n    "))
    text = head + made + "        descent" + rest.partition("        descent")[2]
    facts = analyze(Project.of(put({"main.py": text}, tmp_path) / "main.py"), batch_dim=0)
    assert facts is not None
    assert bool(facts.divisions) is divided, facts.undivided


def test_sums_along_an_axis_are_not_followed_where_samples_lie_along_another(
    tmp_path: Path,
) -> None:
    body = SLICES + "loss = (net(x) - y).pow(2).sum(0).mean()"
    assert facts_of(body, tmp_path / "first", 0).divisions
    assert not facts_of(body, tmp_path / "second", 1).divisions


def test_what_is_flattened_is_divided_above(tmp_path: Path) -> None:
    facts = facts_of(SLICES + "y = y.cuda()\ny = y.view(-1)\n" + CALL, tmp_path, 0)
    (division,) = facts.divisions
    assert facts.text(division.statement) == "y = y.view(-1)"


def test_what_a_function_computes_along_an_axis_is_not_followed_either(tmp_path: Path) -> None:
    text = PROGRAM.replace(
        "def apply(", "def cost(a, b):\n    return (a - b).sum(0)\n\n\ndef apply("
    )
    body = (SLICES + "loss = cost(net(x), y).mean()").replace("\n", "\n        ")
    entry = put({"main.py": text.replace("BODY", body)}, tmp_path) / "main.py"
    for axis, divided in ((0, True), (1, False)):
        facts = analyze(Project.of(entry), batch_dim=axis)
        assert facts is not None
        assert bool(facts.divisions) is divided


def test_the_axis_that_is_divided_is_not_that_of_what_is_turned(tmp_path: Path) -> None:
    text = PROGRAM.replace("nn.Linear(12, 3)", "nn.DataParallel(nn.Linear(12, 3))")
    for call, divided in ((CALL, True), (CALL.replace("net(x)", "net(x.t())"), False)):
        body = (SLICES + call).replace("\n", "\n        ")
        entry = put({"main.py": text.replace("BODY", body)}, tmp_path / str(divided)) / "main.py"
        facts = analyze(Project.of(entry))
        assert facts is not None
        assert bool(facts.divisions) is divided


TRANSLATION = """import torch
from torch import nn
from torchtext.data import BucketIterator
from corpus import net, train, valid

batches, _ = BucketIterator.splits((train, valid), batch_size=32)
adam = torch.optim.Adam(net.parameters())


def turned(words):
    return words.transpose(0, 1)


for turn in range(5):
    seen = 0
    for number, batch in enumerate(batches):
        words, label = turned(batch.text), batch.label.view(-1)
        loss = nn.functional.cross_entropy(net(words), label)
        adam.zero_grad()
        loss.backward()
        adam.step()
        seen += batch.batch_size
    print(turn, seen)
"""
NET = """from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 2)

    def forward(self, words):
        return self.out(words.float())


net, train, valid = Net(), [], []
"""
KEPT_WHOLE = [
    pytest.param(("label = turned", "label = batch, turned"), id="kept"),
    pytest.param(("turned(batch.text)", "turned(batch.text + batch.fields)"), id="not-a-field"),
    pytest.param(("net(words), label)", "net(words), batch)"), id="given-away"),
    pytest.param(("torchtext.data import", "iterators import"), id="other-iterator"),
]


def translation(folder: Path, *change: str) -> Path:
    text = TRANSLATION.replace(*change) if change else TRANSLATION
    return put({"main.py": text, "corpus.py": NET}, folder) / "main.py"


def test_batches_of_torchtext_are_divided_by_their_fields(tmp_path: Path) -> None:
    entry = translation(tmp_path)
    facts = analyze(Project.of(entry), batch_dim=1)
    assert facts is not None
    (division,) = facts.divisions
    assert (division.names, division.axis) == (("batch.text", "batch.label"), 1)
    assert [facts.text(size) for size in division.sizes] == ["batch.batch_size"]
    unsaid = analyze(Project.of(entry))
    assert unsaid is not None
    assert "`batch.text` and `batch.label`" in unsaid.undivided[0][1]


@pytest.mark.parametrize("change", KEPT_WHOLE)
def test_a_batch_that_is_used_otherwise_than_by_its_fields_is_not_divided(
    change: tuple[str, str], tmp_path: Path
) -> None:
    facts = analyze(Project.of(translation(tmp_path, *change)), batch_dim=1)
    assert facts is not None
    assert not facts.divisions


LANGUAGE = """import torch
from torch import nn
from elsewhere import ids


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 8)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.out = nn.Linear(16, 100)

    def forward(self, x, h):
        x = self.embed(x)
        x, h = self.lstm(x, h)
        return self.out(x), h


def detach(states):
    return [state.detach() for state in states]


model = Words()
adam = torch.optim.Adam(model.parameters())
for turn in range(5):
    states = (torch.zeros(1, 20, 16), torch.zeros(1, 20, 16))
    for i in range(0, 900, 30):
        x, y = ids[:, i : i + 30], ids[:, i + 1 : i + 31]
        states = detach(states)
        out, states = model(x, states)
        loss = nn.functional.cross_entropy(out.transpose(1, 2), y)
        adam.zero_grad()
        loss.backward()
        adam.step()
"""
NOT_STATES = [
    pytest.param(("[state.detach() for", "[state.mean(1) for"), id="mixed"),
    pytest.param(("torch.zeros(1, 20, 16), torch", "torch.randn(1, 20, 16), torch"), id="drawn"),
    pytest.param(("self.lstm(x, h)", "self.lstm(x, h[:1])"), id="a-part"),
    pytest.param(("return self.out(x), h", "return h, self.out(x)"), id="other-place"),
    pytest.param(("    for i in", "    print(states)\n    for i in"), id="read-elsewhere"),
    pytest.param(("nn.LSTM(8", "nn.Bilinear(8"), id="no-recurrent-layer"),
    pytest.param(
        ("def detach", "def renew():\n    global states\n    states = None\n\n\ndef detach"),
        id="set-by-a-function",
    ),
]


def language(folder: Path, *changes: tuple[str, str]) -> Facts:
    text = LANGUAGE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    facts = analyze(Project.of(put({"main.py": text}, folder) / "main.py"))
    assert facts is not None
    return facts


def test_states_of_a_recurrent_model_begin_for_the_samples_of_a_rank(tmp_path: Path) -> None:
    facts = language(tmp_path)
    (division,) = facts.divisions
    assert (division.names, division.axis) == (("x", "y"), 0)
    assert [facts.text(size) for size in division.sizes] == ["20", "20"]


def test_a_recurrent_layer_says_where_samples_lie(tmp_path: Path) -> None:
    (division,) = language(tmp_path, (", batch_first=True", "")).divisions
    assert division.axis == 1


@pytest.mark.parametrize("change", NOT_STATES)
def test_what_is_not_proven_to_be_a_state_is_not_divided(
    change: tuple[str, str], tmp_path: Path
) -> None:
    facts = language(tmp_path, change)
    assert not facts.divisions
    assert "`states` is carried over" in facts.undivided[0][1]


def test_the_variable_of_a_loop_over_batches_is_no_number(tmp_path: Path) -> None:
    loop = "    for x in corpus():\n        y = x[:, 0]\n        loss = criterion(net(x), y)\n"
    text = PROGRAM.replace("    for i in range(0, 960, 32):\n        BODY\n", loop)
    facts = analyze(Project.of(put({"main.py": text}, tmp_path) / "main.py"), batch_dim=0)
    assert facts is not None
    assert [one.names for one in facts.divisions] == [("x", "y")], facts.undivided


def test_a_batch_that_is_made_whole_cannot_be_kept_per_rank(tmp_path: Path) -> None:
    text = PROGRAM.replace("BODY", (SLICES + CALL).replace("\n", "\n        "))
    entry = put({"main.py": text}, tmp_path) / "main.py"
    outcome = migrate([entry], Settings(batch_size="per-rank", batch_dim=0))
    assert ["DDP218" in one.message for one in outcome.refusals] == [True]
    assert not outcome.changes


COLUMNS = """import torch
from torch import nn
from elsewhere import corpus, kind, rows


class Words(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(100, 8)
        self.rnn = getattr(nn, kind)(8, 16, num_layers=2)
        self.out = nn.Linear(16, 100)

    def forward(self, x, h):
        x = self.embed(x)
        x, h = self.rnn(x, h)
        return self.out(x).view(-1, 100), h

    def begin(self, many):
        state = next(self.parameters())
        return state.new_zeros(2, many, 16), state.new_zeros(2, many, 16)


def take(source, i):
    y = source[i + 1 : i + 31]
    return source[i : i + 30], y.reshape(-1)


def detach(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(detach(v) for v in h)


ids = corpus("train").view(rows, -1).t()
model = Words(kind)
adam = torch.optim.Adam(model.parameters())


def train():
    states = model.begin(rows)
    for i in range(0, len(ids) - 31, 30):
        x, y = take(ids, i)
        states = detach(states)
        out, states = model(x, states)
        loss = nn.functional.cross_entropy(out, y)
        adam.zero_grad()
        loss.backward()
        adam.step()


for turn in range(5):
    train()
"""
NOT_COLUMNS = [
    pytest.param(("    train()\n", "    train()\n    print(ids.size(1))\n"), id="counted"),
    pytest.param(("    train()\n", "    train()\n    print(ids[:, :2])\n"), id="shown"),
    pytest.param(("    train()\n", "    train()\n    ids = ids[3:]\n"), id="bound-again"),
    pytest.param(("source[i : i + 30], y", "source[i : i + 30].t(), y"), id="turned"),
    pytest.param(("source[i : i + 30], y", "source[:30, i].view(-1), y"), id="along-the-axis"),
    pytest.param(("source[i : i + 30], y", "source[i : i + 30].view(-1), y"), id="flat-input"),
    pytest.param(("y = source[i + 1 : i + 31]", "y = y.to(source)"), id="from-itself"),
]
NOT_ZEROS = [
    pytest.param(("state.new_zeros(2, many, 16), state", "state * many, state"), id="computed"),
    pytest.param(("state.new_zeros(2, many, 16), state", "state.new_zeros(many), state"), id="3"),
    pytest.param(("(2, many, 16), state", "(2, many, many), state"), id="used-twice"),
    pytest.param(("num_layers=2", "2"), id="another-layer"),
]


def test_data_that_hold_all_batches_are_divided_where_they_are_made(tmp_path: Path) -> None:
    entry = put({"main.py": COLUMNS}, tmp_path) / "main.py"
    facts = analyze(Project.of(entry))
    assert facts is not None
    (division,) = facts.divisions
    assert division.columns is not None, facts.undivided
    assert facts.text(division.columns) == 'corpus("train").view(rows, -1).t()'
    assert [facts.text(size) for size in division.sizes] == ["rows"]
    assert (division.axis, division.done) == (1, False)


@pytest.mark.parametrize("change", NOT_COLUMNS)
def test_data_that_are_used_along_the_samples_are_left(
    change: tuple[str, str], tmp_path: Path
) -> None:
    assert change[0] in COLUMNS
    facts = analyze(Project.of(put({"main.py": COLUMNS.replace(*change)}, tmp_path) / "main.py"))
    assert facts is not None
    assert not facts.divisions


@pytest.mark.parametrize("change", NOT_ZEROS)
def test_a_method_that_makes_no_zeros_makes_no_states(
    change: tuple[str, str], tmp_path: Path
) -> None:
    assert change[0] in COLUMNS
    facts = analyze(Project.of(put({"main.py": COLUMNS.replace(*change)}, tmp_path) / "main.py"))
    assert facts is not None
    assert not facts.divisions
    assert "`states` is carried over" in facts.undivided[0][1]
