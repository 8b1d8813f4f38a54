"""Evaluations whose batches are dealt to the ranks whole, and the nearest that are not.

A wrong "may be dealt" here is a wrong loss or a hang; where single samples may be shared out, they
are.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.model import Facts
from tests.facts.marks import facts_of, places

TOP = """import time

import torchmetrics

criterion = nn.CrossEntropyLoss(ignore_index=255)


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val, self.sum, self.count = 0.0, 0.0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class Plain(Meter):
    avg = 0.0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class Smooth(Meter):
    def update(self, val, n=1):
        self.count += n
        self.avg = self.sum / self.count
        self.sum += (val + self.avg) * n


class Most(Meter):
    def update(self, val, n=1):
        self.sum = max(self.sum, val * n)
        self.count += n


class Late(Meter):
    def update(self, val, n=1):
        if self.count > 4:
            self.sum += val * n
        self.count += n


class Running:
    def __init__(self):
        self.sum, self.n = 0.0, 0

    def __call__(self, value):
        self.sum += value
        self.n += 1
        return self.sum / self.n


class Matrix:
    def __init__(self):
        self.mat = None

    def update(self, t, p):
        if self.mat is None:
            self.mat = torch.zeros((3, 3), dtype=torch.int64)
        k = t != 255
        self.mat += torch.bincount(3 * t[k] + p[k], minlength=9).reshape(3, 3)


def dice(p, y):
    return 2 * (p * y).sum() / (p.sum() + y.sum() + 1)


net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
rows = TensorDataset(torch.rand(8, 4), torch.zeros(8).long())
loader = DataLoader(rows, 2)
{held}
kept = Meter()


def go():
    net.train()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    net.eval()
"""
HELD = "held = DataLoader(rows, 2)"
LOOP = """    for x, y in {over}:
        out = net(x)
        p = out.argmax(1)
        loss = criterion(out, y)
"""
END = """

for epoch in range(3):
    go()
"""


def program(start: str, body: str, end: str, over: str = "held", held: str = HELD) -> str:
    """An evaluation in a function that is called in every epoch."""

    def inset(text: str, by: int) -> str:
        return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())

    loop = (
        LOOP.replace("{over}", over) if "in " not in over else LOOP.replace("x, y in {over}", over)
    )
    return (
        TOP.replace("{held}", held) + inset(start, 4) + loop + inset(body, 8) + inset(end, 4) + END
    )


def which(facts: Facts, folder: Path) -> str:
    """How the evaluation is shared out: "batches", "samples" or "whole"."""
    lines = (folder / "main.py").read_text("utf-8").splitlines()
    (held,) = [number for number, line in enumerate(lines, 1) if line.startswith("held =")]
    place = f"main.py:{held}"
    if place not in places(facts.sharded):
        return "whole"
    return "batches" if place in places(facts.dealt) else "samples"


def found(text: str, folder: Path) -> tuple[str, set[str], set[str]]:
    """How it is shared out, what is summed and the meters that are reduced after the loop."""
    facts = facts_of(text, folder)
    ends = [e for e in facts.ends if "held" in facts.text(e.loop.header)]
    sums = {name for end in ends for name in (*end.sums, *end.means)}
    assert not any(end.means or end.others or end.samples or end.batches for end in ends)
    return which(facts, folder), sums, {name for end in ends for name in end.meters}


BATCH = "loss.item(), x.size(0)"
DEALT = [
    pytest.param("m = Meter()", f"m.update({BATCH})", "print(m.avg)", {}, {"m"}, id="property"),
    pytest.param("m = Plain()", f"m.update({BATCH})", "print(m.avg)", {}, {"m"}, id="attribute"),
    pytest.param(
        "m, c = Meter(), Matrix()",
        f"m.update({BATCH})\nc.update(y, p)",
        "print(m.avg, c.mat)",
        {"c.mat"},
        {"m"},
        id="with-a-matrix-made-late",
    ),
    pytest.param(
        "a, n = 0.0, 0",
        "a += loss.item() * len(x)\nn += len(x)",
        "print(a / n)",
        {"a", "n"},
        {},
        id="weighed",
    ),
    pytest.param("a = 0.0", "a += loss.item()", "print(a / len(held))", {"a"}, {}, id="by-batches"),
    pytest.param(
        "a, n = 0.0, 0", "a += loss\nn += 1", "print(a / n)", {"a", "n"}, {}, id="counts-batches"
    ),
    pytest.param("a = 0.0", "a = a + loss", "print(a)", {"a"}, {}, id="written-out"),
    pytest.param("a = 0.0", "a += loss.item() ** 2", "print(a)", {"a"}, {}, id="squares"),
    pytest.param("a = 0.0", "a += dice(p, y).item()", "print(a)", {"a"}, {}, id="dice"),
    pytest.param(
        "a = 0.0", "if (y != 255).any():\n    a += loss.item()", "print(a)", {"a"}, {}, id="if-any"
    ),
    pytest.param(
        "a = 0.0",
        "ious = [(p[y == c] == c).float().mean().item() for c in range(3)]\na += sum(ious) / 3",
        "print(a)",
        {"a"},
        {},
        id="mean-of-classes",
    ),
    pytest.param(
        "a = torch.zeros(3)", "a += torch.bincount(y)", "print(a)", {"a"}, {}, id="any-length"
    ),
    pytest.param(
        "a = 0.0\nb, c = next(iter(held))", "a += loss", "print(a, b)", {"a"}, {}, id="fixed-batch"
    ),
    pytest.param(
        "kept.reset()",
        f"kept.update({BATCH})",
        "print(kept.avg)",
        {"kept.sum", "kept.count"},
        {},
        id="kept",
    ),
]


@pytest.mark.parametrize(("start", "body", "end", "sums", "meters"), DEALT)
def test_what_a_batch_gives_is_added_up_over_the_ranks(
    start: str, body: str, end: str, sums: set[str], meters: set[str], tmp_path: Path
) -> None:
    assert found(program(start, body, end), tmp_path) == ("batches", set(sums), set(meters))


ADDED = ("a = 0.0", "a += loss.item()", "print(a)")


@pytest.mark.parametrize(
    "size", ["2", "size", "args.size * 2", 'config["size"]', "batch_size=2, drop_last=False"]
)
def test_the_batch_size_can_be_said_again(size: str, tmp_path: Path) -> None:
    held = f"size, args, config = 2, something(), other()\nheld = DataLoader(rows, {size})"
    assert found(program(*ADDED, held=held), tmp_path)[0] == "batches"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param("rows, 2, shuffle=True", id="shuffled"),
        pytest.param("rows, 2, True", id="shuffled-by-position"),
        pytest.param("rows, 2, shuffle=bool(size)", id="perhaps-shuffled"),
        pytest.param("rows, 2, drop_last=True", id="drops-the-last"),
        pytest.param("rows, None", id="no-batches"),
        pytest.param("rows, **options", id="options"),
        pytest.param("rows, pick()", id="called-for-a-size"),
        pytest.param("rows, batch_sampler=other()", id="own-batches"),
        pytest.param("rows, 2, sampler=other()", id="own-order"),
    ],
)
def test_loaders_that_cannot_be_dealt(given: str, tmp_path: Path) -> None:
    held = f"size, options = 2, dict(batch_size=2)\nheld = DataLoader({given})"
    assert which(facts_of(program(*ADDED, held=held), tmp_path), tmp_path) == "whole"


WHOLE = [
    pytest.param("m = Most()", f"m.update({BATCH})", "print(m.avg)", id="largest-in-a-class"),
    pytest.param("m = Smooth()", f"m.update({BATCH})", "print(m.avg)", id="looks-at-its-mean"),
    pytest.param("m = Late()", f"m.update({BATCH})", "print(m.avg)", id="begins-late"),
    pytest.param("m = Running()\na = 0.0", "a += m(loss)", "print(a)", id="running-mean"),
    pytest.param(
        "m = Meter()\na = 0.0", f"m.update({BATCH})\na += m.avg", "print(a)", id="adds-the-mean"
    ),
    pytest.param(
        "m = Meter()", f"m.update({BATCH})\nprint(m.avg)", "print(m.avg)", id="mean-shown"
    ),
    pytest.param("a = 0.0", "a = max(a, loss.item())", "print(a)", id="largest"),
    pytest.param("a = 0.0", "a = 0.9 * a + loss.item()", "print(a)", id="fades"),
    pytest.param("a = 0.0", "a *= 0.9\na += loss.item()", "print(a)", id="fades-in-place"),
    pytest.param("a = torch.zeros(1)", "a.mul_(0.9)\na += loss", "print(a)", id="fades-by-method"),
    pytest.param("a = 5.0", "a += loss.item()", "print(a)", id="not-from-zero"),
    pytest.param("pass", f"kept.update({BATCH})", "print(kept.avg)", id="not-reset"),
    pytest.param("a, b = 0.0, 0.0", "a += loss\nb += a * 2", "print(b)", id="sum-of-sums"),
    pytest.param(
        "a, n = 0.0, 0", "n += 1\nif n > 2:\n    a += loss", "print(a)", id="after-two-batches"
    ),
    pytest.param(
        "a, n = 0.0, 0",
        "n += 1\nif n > 2:\n    continue\na += loss",
        "print(a)",
        id="skips-batches",
    ),
    pytest.param("a, o = 0.0, 0", "a += loss * o\no = loss", "print(a)", id="last-loss"),
    pytest.param("a = []", "a.append(loss.item())", "print(sum(a))", id="list"),
    pytest.param("a = 0.0", "a += loss\nprint(loss)", "print(a)", id="shown"),
    pytest.param("a = 0.0", "a += loss\nif loss > 9:\n    break", "print(a)", id="left-early"),
    pytest.param(
        "a = 0.0\nif time.time() > 9:\n    b, c = next(iter(held))",
        "a += loss",
        "print(a)",
        id="fixed-batch-on-some-ranks",
    ),
    pytest.param(
        "a = 0.0\nit = iter(held)\nx, y = next(it)", "a += loss", "print(a)", id="iterator-kept"
    ),
    pytest.param(
        "a = 0.0\nfor x, y in loader:\n    x, y = next(iter(held))",
        "a += loss",
        "print(a)",
        id="first-in-a-loop-over-shares",
    ),
    pytest.param(
        "a = 0.0\nm = torchmetrics.F1()", "a += m(out, y)", "print(a)", id="unknown-object"
    ),
    pytest.param("a = torch.zeros(3)\nb = a", "b += torch.bincount(y)", "print(a)", id="two-names"),
    pytest.param("a = ''", "a += str(loss.item())", "print(a)", id="text"),
    pytest.param("a, g = 0.0, iter(range(9))", "a += loss * next(g)", "print(a)", id="iterator"),
    pytest.param("a, g = 0.0, iter(range(9))", "a += loss * g.next()", "print(a)", id="by-method"),
    pytest.param("import random\na = 0.0", "a += loss * random.random()", "print(a)", id="drawn"),
    pytest.param(
        "a = 0\ndef add(v):\n    nonlocal a\n    a += v",
        "add((p == y).sum().item())",
        "print(a)",
        id="nonlocal",
    ),
    pytest.param(
        "a, n = 0, 0",
        "n += 1\nif n < 3:\n    a += (p == y).sum().item()",
        "print(a)",
        id="samples-of-two-batches",
    ),
]


@pytest.mark.parametrize(("start", "body", "end"), WHOLE)
def test_loops_that_stay_whole(start: str, body: str, end: str, tmp_path: Path) -> None:
    assert which(facts_of(program(start, body, end), tmp_path), tmp_path) == "whole"


NUMBERED = [
    pytest.param("i, (x, y) in enumerate(held)", "a += loss", "batches", id="not-used"),
    pytest.param("i, (x, y) in enumerate(held)", "a += loss * i", "whole", id="weighed"),
    pytest.param("i, (x, y) in enumerate(held)", "if i:\n    a += loss", "whole", id="asked"),
    pytest.param(
        "x, y in held", "for i, c in enumerate(p):\n    a += c * i", "batches", id="of-samples"
    ),
    pytest.param("(x, y), i in zip(held, range(3))", "a += loss", "whole", id="cut-short"),
    pytest.param(
        "i, (x, y) in enumerate(held)", "if i < 2:\n    a += len(y)", "whole", id="samples-of-some"
    ),
    pytest.param(
        "i, (x, y) in enumerate(held)",
        "a += len(y)\nif i % 2:\n    print(i)",
        "samples",
        id="samples-with-a-message",
    ),
]


@pytest.mark.parametrize(("over", "body", "how"), NUMBERED)
def test_the_number_of_a_batch_is_another_on_each_rank(
    over: str, body: str, how: str, tmp_path: Path
) -> None:
    text = program("a = 0.0", body, "print(a)", over)
    assert which(facts_of(text, tmp_path), tmp_path) == how


def test_samples_are_shared_out_where_that_gives_the_same(tmp_path: Path) -> None:
    text = program("a = 0", "a += (p == y).sum().item()", "print(a)")
    assert which(facts_of(text, tmp_path), tmp_path) == "samples"


def test_a_cut_by_something_else_is_another_cut_of_each_share(tmp_path: Path) -> None:
    text = program(
        "a = 0", "a += (p == y).sum().item()", "print(a)", "(x, y), i in zip(held, 'ab')"
    )
    assert which(facts_of(text, tmp_path), tmp_path) == "whole"


def test_a_list_with_a_number_of_each_batch_leaves_its_loader_whole(tmp_path: Path) -> None:
    """Shares may have unequally many batches; lists of as many entries only can be averaged."""
    text = (
        "net = nn.Linear(4, 1)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "fit = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 1)), 2)\n"
        "held = DataLoader(TensorDataset(torch.rand(9, 4), torch.rand(9, 1)), 2)\n"
        "for x, y in fit:\n    nn.functional.mse_loss(net(x), y).backward()\n    optimizer.step()\n"
        "net.eval()\nlosses = []\nwith torch.no_grad():\n    for x, y in held:\n"
        "        losses.append(nn.functional.mse_loss(net(x), y).item())\nprint(max(losses))\n"
    )
    facts = facts_of(text, tmp_path)
    training = {loader.born for loop in facts.training for loader in loop.loaders}
    assert facts.sharded == training
