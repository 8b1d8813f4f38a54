"""What an evaluation collects: matrices of counts, and lists of predictions.

A wrong "may be shared out" here gives a wrong mIoU or mAP without a word; next to each form that
ranks can put together stands the nearest that they cannot.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.events import LoopEnd
from tests.facts.marks import facts_of, places

TOP = """import numpy as np
from sklearn.metrics import confusion_matrix


class Matrix:
    def __init__(self, n):
        self.n = n
        self.reset()

    def reset(self):
        self.counts = np.zeros((self.n, self.n))

    def update(self, t, p):
        keep = (t >= 0) & (t < self.n)
        bins = np.bincount(self.n * t[keep] + p[keep], minlength=self.n**2)
        self.counts += bins.reshape(self.n, self.n)

    def miou(self):
        return np.diag(self.counts).sum() / self.counts.sum()


class Lazy:
    def __init__(self):
        self.counts = None

    def update(self, t, p):
        if self.counts is None:
            self.counts = torch.zeros((3, 3), device=t.device)
        k = t != 255
        self.counts += torch.bincount(3 * t[k] + p[k], minlength=9).reshape(3, 3)

    def reset(self):
        self.counts.zero_()


class Smooth(Matrix):
    def update(self, t, p):
        self.counts = 0.9 * self.counts + np.bincount(t, minlength=self.n)


class Tally:
    def __init__(self):
        self.total, self.number, self.last = 0, 0, None

    def update(self, value, n):
        self.last = value
        self.total += value * n
        self.number += n

    @property
    def mean(self):
        return self.total / self.number


class Pairs:
    def __init__(self):
        self.before, self.counts = 0, np.zeros((3, 3))

    def update(self, values):
        for value in values:
            self.counts[self.before, value] += 1
            self.before = value


class First:
    def __init__(self):
        self.counts = np.zeros(3)

    def update(self, values):
        for value in values:
            if value == 2:
                break
            self.counts[value] += 1


class Listing:
    def __init__(self):
        self.seen = []

    def update(self, p):
        self.seen.append(p)


def add(matrix, t, p):
    matrix += np.bincount(3 * t + p, minlength=9).reshape(3, 3)


def decode(logits, least):
    found = []
    for i in range(logits.shape[0]):
        scores = logits[i].softmax(0)
        boxes = scores[scores > least]
        if len(boxes) > 0:
            boxes = boxes[:5]
        found.append({"boxes": boxes, "scores": scores})
    return found


def filtered(logits):
    found = []
    for row in logits:
        if row.max() > 0:
            found.append(row)
    return found


def against_each_other(logits):
    found = []
    for i in range(len(logits)):
        apart = 0
        for j in range(len(logits)):
            apart = apart + (logits[i] - logits[j]).abs().sum()
        found.append(apart)
    return found


net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
rows = TensorDataset(torch.rand(8, 4), torch.zeros(8).long())
loader = DataLoader(rows, 2)
held = DataLoader(rows, 2)
kept, always = Matrix(3), []


def go():
    net.train()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    net.eval()
"""
LOOP = """    for x, y in {over}:
        out = net(x)
        p = out.argmax(1)
"""
END = """

for epoch in range(3):
    go()
"""


def program(start: str, body: str, end: str, over: str = "held") -> str:
    """An evaluation in a function that is called in every epoch."""

    def inset(text: str, by: int) -> str:
        return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())

    return TOP + inset(start, 4) + LOOP.format(over=over) + inset(body, 8) + inset(end, 4) + END


def ends(start: str, body: str, end: str, folder: Path, over: str = "held") -> LoopEnd | None:
    """What the ranks combine after the evaluation; None when each evaluates everything."""
    facts = facts_of(program(start, body, end, over), folder)
    lines = (folder / "main.py").read_text("utf-8").splitlines()
    (held,) = [number for number, line in enumerate(lines, 1) if line.startswith("held =")]
    if f"main.py:{held}" not in places(facts.sharded):
        return None
    (found,) = [e for e in facts.ends if over in facts.text(e.loop.header) and e.communicates]
    return found


SUMS = [
    pytest.param(
        "a = torch.zeros(3, 3)",
        "a += torch.bincount(3 * y + p, minlength=9).reshape(3, 3)",
        "print(a)",
        ("a",),
        id="tensor",
    ),
    pytest.param(
        "a = np.zeros((3, 3))",
        "k = y != 1\na += np.bincount(3 * y[k] + p[k], minlength=9).reshape(3, 3)",
        "print(a)",
        ("a",),
        id="array-of-picked-entries",
    ),
    pytest.param(
        "a = np.zeros((3, 3))",
        "a += confusion_matrix(y, p, labels=[0, 1, 2])",
        "print(a)",
        ("a",),
        id="sklearn-with-labels",
    ),
    pytest.param(
        "a = torch.zeros(3, 3)",
        "for t, g in zip(y.view(-1), p.view(-1)):\n    a[t.long(), g.long()] += 1",
        "print(a)",
        ("a",),
        id="entry-by-entry",
    ),
    pytest.param(
        "a = torch.zeros(3)",
        "for c in range(3):\n    a[c] += (p[y == c] == c).sum()",
        "print(a)",
        ("a",),
        id="class-by-class",
    ),
    pytest.param(
        "a = torch.zeros(3, 3)",
        "a.index_put_((y, p), torch.ones(len(y)), accumulate=True)",
        "print(a)",
        ("a",),
        id="index-put",
    ),
    pytest.param("a = torch.zeros(3)", "a.scatter_add_(0, y, p)", "print(a)", ("a",), id="scatter"),
    pytest.param(
        "a = np.zeros((3, 3))", "np.add.at(a, (y, p), 1)", "print(a)", ("a",), id="add-at"
    ),
    pytest.param(
        "a = 0",
        "for t, g in zip(y, p):\n    if t == g:\n        a += 1",
        "print(a)",
        ("a",),
        id="counted-under-a-condition",
    ),
    pytest.param(
        "a = Matrix(3)", "a.update(y, p)", "print(a.miou())", ("a.counts",), id="in-a-class"
    ),
    pytest.param("a = Lazy()", "a.update(y, p)", "print(a)", ("a.counts",), id="begun-late"),
    pytest.param(
        "kept.reset()", "kept.update(y, p)", "print(kept.miou())", ("kept.counts",), id="reset"
    ),
    pytest.param(
        "a = Tally()",
        "a.update((p == y).float().mean().item(), len(y))",
        "print(a.mean)",
        ("a.number", "a.total"),
        id="meter-of-other-names",
    ),
    pytest.param(
        "a = Tally()",
        "a.update((p == y).float().mean().item(), len(y))",
        "print(a.number)",
        ("a.number",),
        id="one-attribute-is-read",
    ),
]


@pytest.mark.parametrize(("start", "body", "end", "sums"), SUMS)
def test_sums_in_arrays_and_objects(
    start: str, body: str, end: str, sums: tuple[str, ...], tmp_path: Path
) -> None:
    found = ends(start, body, end, tmp_path)
    assert found is not None
    assert tuple(sorted(found.sums)) == sums
    assert (found.means, found.others) == ((), ())


DECODED = "for d, t in zip(decode(out, 0.1), y):\n    a.append(d)\n    b.append(t)"
LISTS = [
    pytest.param(
        "a, b = [], []",
        "a.append(p.cpu())\nb.append(y)",
        "print(torch.cat(a), torch.cat(b))",
        (),
        ("a", "b"),
        id="per-batch",
    ),
    pytest.param("a = list()", "a.extend(p.cpu().tolist())", "print(a)", ("a",), (), id="extended"),
    pytest.param("a = []", "a += p.tolist()", "print(a)", ("a",), (), id="added-to"),
    pytest.param("a = []", "a.extend([g.item() for g in p])", "print(a)", ("a",), (), id="listed"),
    pytest.param("a, b = [], []", DECODED, "print(a, b)", ("a", "b"), (), id="decoded"),
    pytest.param(
        "a, b = [], []",
        "for d, t in zip(decode(out, 0.1), y):\n"
        "    a.append({k: v.numpy() for k, v in d.items()})\n    b.append(t.item())",
        "print(a, b)",
        ("a", "b"),
        (),
        id="dicts",
    ),
    pytest.param(
        "a = []",
        "with torch.no_grad():\n    for i in range(len(y)):\n        a.append((out[i], y[i]))",
        "print(a)",
        ("a",),
        (),
        id="by-number",
    ),
    pytest.param(
        "a = []",
        "found = net(list(row.cpu() for row in x))\n"
        "for f, t in zip(found, y):\n    a.append((f['boxes'], t))",
        "print(a)",
        ("a",),
        (),
        id="torchvision-detector",
    ),
    pytest.param(
        "a = []",
        "values, places = out.topk(2, dim=1)\na.append(places.numpy())",
        "print(np.concatenate(a))",
        (),
        ("a",),
        id="best-two",
    ),
]


@pytest.mark.parametrize(("start", "body", "end", "samples", "batches"), LISTS)
def test_lists_with_an_entry_per_sample_or_batch(
    start: str,
    body: str,
    end: str,
    samples: tuple[str, ...],
    batches: tuple[str, ...],
    tmp_path: Path,
) -> None:
    found = ends(start, body, end, tmp_path)
    assert found is not None
    assert (found.samples, found.batches) == (samples, batches)


WHOLE = [
    # sums
    pytest.param("a = torch.ones(3)", "a += torch.bincount(y, minlength=3)", "print(a)", id="ones"),
    pytest.param("a = torch.zeros(3, 3)", "a[y, p] += 1", "print(a)", id="doublets-count-once"),
    pytest.param(
        "a = torch.zeros(3, 3)", "a.index_put_((y, p), torch.ones(2))", "print(a)", id="index-set"
    ),
    pytest.param("a = 0", "a = 0\na += (p == y).sum().item()", "print(a)", id="begun-anew"),
    pytest.param("a = First()", "a.update(y)", "print(a.counts)", id="class-that-stops-early"),
    pytest.param(
        "a = torch.zeros(3)",
        "a.mul_(0.9)\na += torch.bincount(y, minlength=3)",
        "print(a)",
        id="fading",
    ),
    pytest.param(
        "a = torch.zeros(3, 3)\nlast = 0",
        "for t in y:\n    a[last, t] += 1\n    last = t",
        "print(a)",
        id="transitions",
    ),
    pytest.param(
        "a = torch.zeros(3, 3)",
        "for t, g in zip(y, p):\n    if t == 2:\n        break\n    a[t, g] += 1",
        "print(a)",
        id="entries-left-early",
    ),
    pytest.param("a = np.zeros((3, 3))", "add(a, y, p)", "print(a)", id="changed-by-a-function"),
    pytest.param(
        "a = np.zeros(3)\nb = a", "b += np.bincount(y, minlength=3)", "print(a)", id="another-name"
    ),
    pytest.param("a = Listing()", "a.update(p)", "print(a.seen)", id="list-in-a-class"),
    pytest.param("pass", "kept.update(y, p)", "print(kept.miou())", id="not-reset"),
    pytest.param("a = Smooth(3)", "a.update(y, p)", "print(a.miou())", id="class-that-fades"),
    pytest.param("a = Pairs()", "a.update(y)", "print(a.counts)", id="class-of-transitions"),
    pytest.param(
        "a = Matrix(3)", "a.reset()\na.update(y, p)", "print(a.miou())", id="reset-in-the-loop"
    ),
    pytest.param(
        "a = Tally()",
        "a.update((p == y).sum(), 1)",
        "print(a.total, a.last)",
        id="last-value-shown",
    ),
    pytest.param(
        "a = {'m': Matrix(3)}", "a['m'].update(y, p)", "print(a)", id="object-without-a-name"
    ),
    # lists
    pytest.param("a = []", "if y[0] > 1:\n    a.append(p)", "print(a)", id="under-a-condition"),
    pytest.param("a = []", "a.append(p)\na.append(y)", "print(a)", id="two-in-one"),
    pytest.param("a = []", "a.append(net(x, y).cpu())", "print(a)", id="perhaps-a-loss"),
    pytest.param("a = [y0]", "a.append(p)", "print(a)", id="not-empty"),
    pytest.param("always.clear()", "always.append(p)", "print(always)", id="outlives-the-epoch"),
    pytest.param("a = b = []", "a.append(p)", "print(a, b)", id="two-names"),
    pytest.param("a = []", "a.append(p)\nprint(len(a))", "print(a)", id="read-in-the-loop"),
    pytest.param("a = []", "a.append(p.view(-1))", "print(a)", id="axes-lost"),
    pytest.param("a = []", "a.append(out.softmax(0))", "print(a)", id="along-the-batch"),
    pytest.param("a = []", "a.append(out.t())", "print(a)", id="transposed"),
    pytest.param("a = []", "a.append(p[y > 0])", "print(a)", id="picked-entries"),
    pytest.param("a = []", "a.append((p == y).float().mean())", "print(a)", id="batch-means"),
    pytest.param("a = []", "a.extend(filtered(out))", "print(a)", id="filtered-by-a-function"),
    pytest.param(
        "a = []", "a.extend(against_each_other(out))", "print(a)", id="depends-on-the-batch"
    ),
    pytest.param("a = []", "for d in filtered(out):\n    a.append(d)", "print(a)", id="filtered"),
    pytest.param(
        "a = []", "for i, g in enumerate(p):\n    a.append(i)", "print(a)", id="number-in-the-batch"
    ),
    pytest.param(
        "a = []",
        "for g in p:\n    if g > 1:\n        continue\n    a.append(g)",
        "print(a)",
        id="skips",
    ),
    pytest.param(
        "a = []\nlast = 0",
        "for g in p:\n    a.append(g - last)\n    last = g",
        "print(a)",
        id="differences",
    ),
    pytest.param(
        "a = []\nh = 0",
        "h = h + out.mean(1)\na.append(h)",
        "print(a)",
        id="goes-on-from-batch-to-batch",
    ),
    pytest.param("a = []", "a.extend(x[:1])", "print(a)", id="first-of-each-batch"),
]


@pytest.mark.parametrize(("start", "body", "end"), WHOLE)
def test_other_collections_are_made_whole(start: str, body: str, end: str, tmp_path: Path) -> None:
    assert ends(start, body, end, tmp_path) is None


def test_a_slice_of_a_loader_is_another_slice_of_each_share(tmp_path: Path) -> None:
    start, body = "import itertools\na = 0", "a += (p == y).sum()"
    assert ends(start, body, "print(a)", tmp_path, "itertools.islice(held, 2)") is None
