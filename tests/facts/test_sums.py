"""What loops leave behind: which numbers ranks may combine, and which evaluations may be shared.

A wrong "may" here prints a wrong accuracy without a word, so every way to keep something else
than sums has a row.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.facts.marks import facts_of, places

METER = """
class {name}:
    def __init__(self):
        self.{sum}, self.{count}, self.{avg} = 0, 0, 0

    def update(self, value, n=1):
        self.{sum} += value * n
        self.{count} += n
        self.{avg} = self.{sum} / self.{count}

"""
USUAL = METER.format(name="Meter", sum="sum", count="count", avg="avg")
OTHER = METER.format(name="Tally", sum="total", count="number", avg="mean")


def program(loop: str, start: str, body: str, end: str) -> str:
    """A loop over the training or the held-back loader, in a function of its own."""

    def inset(text: str, by: int) -> str:
        return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())

    learn = "loss.backward()\noptimizer.step()" if loop == "loader" else "pass"
    idle = (
        ""
        if loop == "loader"
        else inset("for x, y in loader:", 0)
        + inset("nn.functional.cross_entropy(net(x), y).backward()\noptimizer.step()", 4)
    )
    return (
        f"{USUAL}{OTHER}net = nn.Linear(4, 3)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "rows = TensorDataset(torch.rand(8, 4), torch.zeros(8).long())\n"
        "loader = DataLoader(rows, 2)\nheld = DataLoader(rows, 2)\nindex = 0\nkept = Meter()\n\n"
        "def go():\n    net.train()\n"
        + ("    net.eval()\n" if loop == "held" else "")
        + inset(start, 4)
        + f"    for x, y in {loop}:\n        out = net(x)\n"
        "        loss = nn.functional.cross_entropy(out, y)\n"
        + inset(learn, 8)
        + inset(body, 8)
        + inset(end, 4)
        + f"\n{idle}for epoch in range(3):\n    go()\n"
    )


HITS = "(out.argmax(1) == y).sum().item()"
LEFT = [
    # start, body, end; sums, means, meters, others
    pytest.param(
        "total, n = 0.0, 0",
        "total += loss.item() * x.size(0)\nn += len(y)",
        "print(total / n)",
        ("n", "total"),
        (),
        (),
        (),
        id="sum-and-count",
    ),
    pytest.param("a = 0", f"a += {HITS}", "print(a)", ("a",), (), (), (), id="hits"),
    pytest.param(
        "a = 0", f"a = a + x.shape[0] - {HITS}", "print(a)", ("a",), (), (), (), id="misses"
    ),
    pytest.param(
        "a = 0.0", "a += loss.item()", "print(a)", (), ("a",), (), (), id="sum-of-batch-means"
    ),
    pytest.param(
        "a = 0.0",
        "a += (out.argmax(1) == y).float().mean()",
        "print(a)",
        (),
        ("a",),
        (),
        (),
        id="sum-of-batch-accuracies",
    ),
    pytest.param(
        "a = 0.0",
        "a = 0.9 * a + 0.1 * loss.item()",
        "print(a)",
        (),
        ("a",),
        (),
        (),
        id="running-mean",
    ),
    pytest.param(
        "m = Meter()",
        "m.update(loss.item(), x.size(0))",
        "print(m.avg)",
        (),
        (),
        ("m",),
        (),
        id="meter",
    ),
    pytest.param("a = None", "a = loss.item()", "print(a)", (), (), (), ("a",), id="last-batch"),
    pytest.param(
        "a = 0",
        "for t, p in zip(y, out.argmax(1)):\n    if t == p:\n        a += 1",
        "print(a)",
        ("a",),
        (),
        (),
        (),
        id="counted-under-a-condition",
    ),
    pytest.param(
        "a = torch.zeros(3, 3)",
        "for t, p in zip(y, out.argmax(1)):\n    a[t, p] += 1",
        "print(a)",
        ("a",),
        (),
        (),
        (),
        id="confusion-matrix",
    ),
    pytest.param(
        "a = torch.zeros(3, 3)",
        "a[y, out.argmax(1)] += 1",
        "print(a)",
        (),
        (),
        (),
        ("a",),
        id="confusion-matrix-at-once",
    ),
    pytest.param("a = 0", "a += 1", "print(a)", (), (), (), (), id="passes-are-not-of-samples"),
    pytest.param(
        "pass",
        "kept.update(loss.item(), x.size(0))",
        "print(kept.avg)",
        (),
        (),
        (),
        (),
        id="meter-that-goes-on-in-the-next-epoch",
    ),
    pytest.param("a = 0", f"a += {HITS}", "print()", (), (), (), (), id="never-read"),
]


@pytest.mark.parametrize(("start", "body", "end", "sums", "means", "meters", "others"), LEFT)
def test_what_a_training_loop_leaves_behind(
    start: str,
    body: str,
    end: str,
    sums: tuple[str, ...],
    means: tuple[str, ...],
    meters: tuple[str, ...],
    others: tuple[str, ...],
    tmp_path: Path,
) -> None:
    facts = facts_of(program("loader", start, body, end), tmp_path)
    (left,) = facts.ends
    assert (tuple(sorted(left.sums)), left.means, left.meters) == (sums, means, meters)
    assert set(others) <= set(left.others)


@pytest.mark.parametrize(
    ("start", "body", "end", "how"),
    [
        ("a = 0.0", "a += loss.item() ** 2", "print(a)", "reduce_mean"),
        ("global index", f"index += {HITS}", "print(index)", "reduce_sum"),
    ],
    ids=["squares", "sum-that-goes-on-in-the-next-epoch"],
)
def test_what_no_loop_may_leave_is_reduced_in_each_step(
    start: str, body: str, end: str, how: str, tmp_path: Path
) -> None:
    facts = facts_of(program("loader", start, body, end), tmp_path)
    (left,) = facts.ends
    assert (left.sums, left.means, left.others) == ((), (), ())
    assert [helper for _, helper in facts.kept] == [how]


SHARED = [
    pytest.param("a = 0", f"a += {HITS}", "print(a)", id="hits"),
    pytest.param(
        "a, n = 0.0, 0", "a += loss.item() * len(x)\nn += y.size(0)", "return a / n", id="mean"
    ),
    pytest.param("m = Meter()", "m.update(loss.item(), x.size(0))", "print(m.avg)", id="meter"),
    pytest.param("a = 0", f"a += {HITS}", "print(a, len(held))", id="batches-are-shown"),
    pytest.param("a = 0", f"a += {HITS}", "print(a / len(held.dataset))", id="by-the-data-set"),
    pytest.param(
        "a = {0: 0, 1: 0, 2: 0}", "for t in y:\n    a[t.item()] += 1", "print(a)", id="per-class"
    ),
]
WHOLE = [
    pytest.param("a = 0", f"a += {HITS}\nprint(out)", "print(a)", id="batch-shown"),
    pytest.param("a = 0", f"a += {HITS}\nif a > 3:\n    break", "print(a)", id="leaves-early"),
    pytest.param("a = []", "if loss > 1:\n    a.append(1)", "print(len(a))", id="list-of-ones"),
    pytest.param("a = 5", f"a += {HITS}", "print(a)", id="does-not-start-at-zero"),
    pytest.param("a = 0.0", "a = max(a, loss.item())", "print(a)", id="largest"),
    pytest.param("m = Meter()", "m.update(loss.item())", "print(m.avg)", id="meter-of-batches"),
    pytest.param("a = torch.zeros(3, 3)", "a[y, out.argmax(1)] += 1", "print(a)", id="matrix"),
    pytest.param(
        "import torchmetrics\na = torchmetrics.Accuracy()",
        "a.update(out, y)",
        "print(a.compute())",
        id="metric-object",
    ),
    pytest.param(
        "global index",
        f"index += {HITS}",
        "print(index)",
        id="global",
    ),
]


@pytest.mark.parametrize(("start", "body", "end"), SHARED)
def test_evaluations_that_only_add_up_are_shared_out(
    start: str, body: str, end: str, tmp_path: Path
) -> None:
    assert _held_is_shared(program("held", start, body, end), tmp_path)


@pytest.mark.parametrize(("start", "body", "end"), WHOLE)
def test_other_evaluations_stay_whole(start: str, body: str, end: str, tmp_path: Path) -> None:
    assert not _held_is_shared(program("held", start, body, end), tmp_path)


def _held_is_shared(text: str, folder: Path) -> bool:
    facts = facts_of(text, folder)
    lines = (folder / "main.py").read_text("utf-8").splitlines()
    (held,) = [number for number, line in enumerate(lines, 1) if line.startswith("held =")]
    return f"main.py:{held}" in places(facts.sharded)
