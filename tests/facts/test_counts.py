"""Counts that differ between ranks: where they are made those of all ranks, and where they are not.

A wrong "may" here trains something else without a word, or hangs, so every way to use a count for
something else, or to come by less often than other ranks, has a row.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from ddpify.facts.model import Share
from ddpify.rules.gradients import ddp401_sum_loss
from tests.facts.marks import facts_of
from tests.projects import judged

HEAD = "import torch.nn.functional as F\n"
PROGRAM = """{head}
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
rows = TensorDataset(torch.rand(8, 5, 4), torch.zeros(8, 5).long(), torch.rand(8, 5) > 0.5)
loader = DataLoader(rows, 2)
held = DataLoader(rows, 2)
total = 0
{start}
for x, y, mask, boxes in loader:
    out = net(x)
    each = F.cross_entropy(out.transpose(1, 2), y, reduction="none")
{body}
    loss.backward()
    optimizer.step()
"""


def shares(body: str, folder: Path, start: str = "", head: str = "") -> tuple[Share, ...]:
    text = PROGRAM.format(head=HEAD + head, start=start, body=indent(body, " " * 4))
    return facts_of(text, folder).shares


def fixes(body: str, folder: Path, start: str = "", head: str = "") -> list[str]:
    """What the rule puts in place of what, and the notes it leaves."""
    text = PROGRAM.format(head=HEAD + head, start=start, body=indent(body, " " * 4))
    facts = facts_of(text, folder)
    found = judged(facts, [ddp401_sum_loss.RULE])
    notes = ["note" for finding in found if not finding.fix]
    return [e.code.replace("{}", facts.text(e.site)) for f in found for e in f.fix] + notes


OF_ALL = [
    pytest.param("loss = (each * mask).sum() / mask.sum()", "mask.sum()", id="inline"),
    pytest.param("n = mask.sum()\nloss = (each * mask).sum() / n", "mask.sum()", id="name"),
    pytest.param(
        "n = mask.float().sum()\nloss = each[mask].sum() / n", "mask.float().sum()", id="float"
    ),
    pytest.param("n = torch.sum(mask)\nloss = each[mask].sum() / n", "torch.sum(mask)", id="torch"),
    pytest.param("n = mask.sum().item()\nloss = each[mask].sum() / n", "mask.sum()", id="number"),
    pytest.param(
        "n = int(mask.sum())\nloss = each[mask].sum() / n", "int(mask.sum())", id="whole-number"
    ),
    pytest.param("n = mask.sum()\nloss = each[mask].sum()\nloss /= n", "mask.sum()", id="in-place"),
    pytest.param("loss = each[mask].sum().div(mask.sum())", "mask.sum()", id="method"),
    pytest.param(
        "n = (y > 0).sum() + mask.sum()\nloss = each.sum() / n",
        "(y > 0).sum() + mask.sum()",
        id="sum-of-counts",
    ),
    pytest.param(
        "index = mask.nonzero()\nloss = each[mask].sum() / len(index)", "len(index)", id="length"
    ),
    pytest.param("loss = each[mask].sum() / y[mask].shape[0]", "y[mask].shape[0]", id="shape"),
    pytest.param(
        "loss = each[mask].sum() / torch.where(mask)[0].numel()",
        "torch.where(mask)[0].numel()",
        id="where",
    ),
    pytest.param(
        "hard = each > 0.5\nloss = (each * hard).sum() / hard.sum()", "hard.sum()", id="of-outputs"
    ),
    pytest.param(
        "n = sum(len(t['boxes']) for t in boxes)\nloss = each.sum() / n",
        "sum(len(t['boxes']) for t in boxes)",
        id="of-each-sample",
    ),
    pytest.param(
        "all = torch.cat([t['boxes'] for t in boxes])\nloss = each.sum() / len(all)",
        "len(all)",
        id="of-all-samples",
    ),
    pytest.param(
        "mine = torch.zeros(len(x), 5)\nmine[0, y[0]] = 1\nloss = (each * mine).sum() / mine.sum()",
        "mine.sum()",
        id="filled",
    ),
    pytest.param(
        "n = mask.sum()\nloss = each[mask].sum() / n if n > 0 else out.sum() * 0",
        "mask.sum()",
        id="where-there-are-any",
    ),
    pytest.param("n = mask.sum()\nprint(n)\nloss = each[mask].sum() / n", "n", id="shown-too"),
    pytest.param("n = mask.sum()\ntotal += n\nloss = each[mask].sum() / n", "n", id="added-up-too"),
]


@pytest.mark.parametrize(("body", "count"), OF_ALL)
def test_a_count_is_made_that_of_all_ranks(body: str, count: str, tmp_path: Path) -> None:
    found = fixes(body, tmp_path)
    assert found[:1] == [f"per_rank_count({count})"]
    assert "note" not in found[1:] or "else" in body


BOUNDED = [
    pytest.param("mask.sum().clamp(min=1)", "mask.sum(), at_least=1", id="clamp"),
    pytest.param("mask.sum().clamp(1)", "mask.sum(), at_least=1", id="clamp-by-position"),
    pytest.param("mask.sum().clamp_(1.0)", "mask.sum(), at_least=1.0", id="in-place"),
    pytest.param("mask.sum().clamp_min(1)", "mask.sum(), at_least=1", id="clamp-min"),
    pytest.param("torch.clamp(mask.sum(), min=1)", "mask.sum(), at_least=1", id="torch"),
    pytest.param("max(mask.sum(), 1)", "mask.sum(), at_least=1", id="max"),
    pytest.param("max(1, mask.sum().item())", "mask.sum().item(), at_least=1", id="max-number"),
    pytest.param(
        "max(sum(len(t) for t in boxes), 1)", "sum(len(t) for t in boxes), at_least=1", id="boxes"
    ),
    pytest.param("max(int(mask.sum()), 1)", "int(mask.sum()), at_least=1", id="max-whole-number"),
    pytest.param("mask.sum().float().clamp(min=eps)", "mask.sum().float(), at_least=eps", id="eps"),
    pytest.param("mask.sum().clamp(min=1).item()", "mask.sum(), at_least=1", id="then-number"),
]


@pytest.mark.parametrize(("count", "arguments"), BOUNDED)
def test_a_bound_is_put_on_the_count_of_all_ranks(
    count: str, arguments: str, tmp_path: Path
) -> None:
    body = f"n = {count}\nloss = each[mask].sum() / n"
    assert fixes(body, tmp_path, start="eps = 1e-6") == [f"per_rank_count({arguments})"]


def test_a_bound_in_a_statement_of_its_own_leaves_the_count_before_it_alone(tmp_path: Path) -> None:
    body = "n = mask.sum()\nprint(n)\nn = max(n, 1)\nloss = each[mask].sum() / n"
    assert fixes(body, tmp_path) == ["per_rank_count(n, at_least=1)"]


NAMED = [
    pytest.param("loss = each[mask].sum() / (mask.sum() + 1e-6)", id="more-than-the-count"),
    pytest.param("loss = each[mask].sum() * (1 / mask.sum())", id="multiplied"),
    pytest.param(
        "n = mask.sum().clamp(min=1)\nprint(n)\nloss = each[mask].sum() / n", id="bounded-and-shown"
    ),
    pytest.param(
        "n = max(int(mask.sum()), 1)\ny = y[n]\nloss = each[mask].sum() / n", id="bounded-index"
    ),
    pytest.param(
        "n = max(mask.sum(), 1)\nlog = {'n': n}\nprint(log)\nloss = each[mask].sum() / n",
        id="bounded-and-shown-in-a-dict",
    ),
    pytest.param("n = int(mask.sum().clamp(min=1))\nloss = each[mask].sum() / n", id="rounded"),
    pytest.param(
        "n = mask.sum().clamp(min=1) + (y > 0).sum()\nloss = each.sum() / n", id="bounded-in-part"
    ),
    pytest.param("loss = each[each.topk(4)[1]].mean()", id="the-worst-of-the-batch"),
    pytest.param("loss = each.topk(4)[0].mean()", id="their-values"),
    pytest.param("loss = each.sort(descending=True)[0][:4].mean()", id="the-worst-by-order"),
    pytest.param("loss = each[each > each.median()].mean()", id="above-the-batch's-median"),
    pytest.param("loss = (each * (each > each.max() / 2)).mean()", id="near-the-batch's-largest"),
    pytest.param("n = mask.sum().clamp(1, 9)\nloss = each[mask].sum() / n", id="from-above-too"),
    pytest.param(
        "n = mask.sum()\nif x.mean() > 0:\n    n = y.max()\nloss = each[mask].sum() / n",
        id="perhaps-something-else",
    ),
    pytest.param(
        "loss = out.mean()\nif x.max() > 0:\n    loss = loss + each[mask].sum() / mask.sum()",
        id="not-on-every-rank",
    ),
    pytest.param(
        "loss = 0\nfor i in range(len(x)):\n    loss = loss + each[:, 0].sum() / mask.sum()",
        id="once-per-sample",
    ),
    pytest.param(
        "loss = sum([each[mask].sum() / mask.sum() for _ in range(len(x))])", id="comprehension"
    ),
]


@pytest.mark.parametrize("body", NAMED)
def test_a_count_that_may_be_something_else_is_named(body: str, tmp_path: Path) -> None:
    assert fixes(body, tmp_path) == ["note"]


def test_a_count_goes_through_functions_and_modules(tmp_path: Path) -> None:
    head = (
        "class Loss(nn.Module):\n    def __init__(self, weight):\n        super().__init__()\n"
        "        self.weight, self.act = weight, nn.Sigmoid()\n"
        "    def part(self, terms, n):\n        return terms.sum() / n\n"
        "    def forward(self, terms, mask):\n"
        "        n = count(mask)\n"
        "        return {'one': self.part(terms, n), 'two': self.part(self.act(terms), n)}\n"
        "def count(mask):\n    return mask.sum().clamp(min=1)\n"
    )
    body = "parts = criterion(each, mask)\nloss = parts['one'] + parts['two']"
    assert fixes(body, tmp_path, "criterion = Loss(2).to('cpu')", head) == [
        "per_rank_count(mask.sum(), at_least=1)"
    ]


LEARNS = [
    pytest.param("self.scale = nn.Parameter(torch.ones(1))", id="parameter"),
    pytest.param("self.scale = nn.Linear(1, 1)", id="layer"),
    pytest.param("self.scale = make()", id="unknown"),
    pytest.param("self.add_module('scale', nn.Linear(1, 1))", id="hidden"),
]


@pytest.mark.parametrize("line", LEARNS)
def test_a_module_that_learns_is_a_model(line: str, tmp_path: Path) -> None:
    head = (
        "from somewhere import make\nclass Loss(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        {line}\n"
        "    def forward(self, terms, mask):\n        return terms.sum() / mask.sum()\n"
    )
    assert not shares("loss = criterion(each, mask)", tmp_path, "criterion = Loss()", head)


IGNORED = [
    pytest.param("nn.CrossEntropyLoss(ignore_index=2)", "(y != 2).sum()", id="literal"),
    pytest.param("nn.CrossEntropyLoss(ignore_index=-1)", "(y != -1).sum()", id="negative"),
    pytest.param(
        "nn.CrossEntropyLoss(ignore_index=VOID)", "(y != criterion.ignore_index).sum()", id="name"
    ),
    pytest.param("nn.NLLLoss(ignore_index=2)", "(y != 2).sum()", id="nll"),
    pytest.param(
        "nn.CrossEntropyLoss(torch.ones(3), ignore_index=2)",
        "criterion.weight[y[y != 2]].sum()",
        id="weights",
    ),
    pytest.param(
        "nn.NLLLoss(torch.ones(3))", "criterion.weight[y[y != -100]].sum()", id="weights-of-nll"
    ),
]


@pytest.mark.parametrize(("criterion", "terms"), IGNORED)
def test_a_mean_over_targets_is_weighed(criterion: str, terms: str, tmp_path: Path) -> None:
    start = f"VOID = 1 + 1\ncriterion = {criterion}"
    call = "criterion(out.transpose(1, 2), y.long())"
    assert fixes(f"loss = {call}", tmp_path, start) == [f"global_mean({call}, {terms})"]


CALLS = [
    pytest.param(
        "F.cross_entropy(out.view(-1, 3), y.view(-1), ignore_index=PAD)",
        "(y != PAD).sum()",
        id="function",
    ),
    pytest.param("F.mse_loss(out[mask], x[mask])", "x[mask].numel()", id="picked"),
    pytest.param("each[mask].mean()", "each[mask].numel()", id="mean-of-picked"),
]


@pytest.mark.parametrize(("call", "terms"), CALLS)
def test_a_mean_in_an_expression_is_weighed(call: str, terms: str, tmp_path: Path) -> None:
    assert fixes(f"loss = {call}", tmp_path, "PAD = 0") == [f"global_mean({call}, {terms})"]


ASKED = [
    pytest.param("nn.CrossEntropyLoss(torch.ones(3))", id="probabilities"),
    pytest.param(
        "nn.CrossEntropyLoss(torch.ones(3) if rows else None, ignore_index=0)",
        id="perhaps-no-weights",
    ),
    pytest.param(
        "nn.CrossEntropyLoss(ignore_index=0) if rows else nn.MSELoss()", id="perhaps-another"
    ),
    pytest.param(
        "nn.CrossEntropyLoss(torch.ones(3)) if rows else Focal(torch.ones(3))",
        id="or-its-own",
    ),
]
FOCAL = """class Focal(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, out, y):
        if self.alpha.type() != out.data.type():
            self.alpha = self.alpha.type_as(out.data)
        logs = F.log_softmax(out, 1).gather(1, y.view(-1, 1)).view(-1)
        return -(logs * self.alpha.gather({axis}, y.view(-1))).{how}()
"""


@pytest.mark.parametrize("criterion", ASKED)
def test_a_criterion_that_may_have_weights_is_asked(criterion: str, tmp_path: Path) -> None:
    call, start = "criterion(out, y.long())", f"criterion = {criterion}"
    head = FOCAL.format(axis=0, how="mean")
    fixed = [f"global_mean({call}, loss_terms(criterion, y.long()))"]
    assert fixes(f"loss = {call}", tmp_path, start, head) == fixed


@pytest.mark.parametrize(("axis", "how"), [(1, "mean"), (0, "sum")])
def test_a_criterion_is_not_asked_where_another_is_not_followed(
    axis: int, how: str, tmp_path: Path
) -> None:
    start = "criterion = nn.CrossEntropyLoss(torch.ones(3)) if rows else Focal(torch.ones(3))"
    head = FOCAL.format(axis=axis, how=how)
    gathered = ["whole_batch(out)", "whole_batch(y)"]
    assert fixes("loss = criterion(out, y)", tmp_path, start, head) == gathered


def test_a_class_made_of_torchs_is_not_asked(tmp_path: Path) -> None:
    start = "criterion = Own() if rows else nn.CrossEntropyLoss(torch.ones(3))"
    head = "class Own(nn.CrossEntropyLoss):\n    pass\n"
    assert fixes("loss = criterion(out, y)", tmp_path, start, head) == ["note"]


UNWEIGHED = [
    pytest.param(
        "[nn.CrossEntropyLoss(torch.ones(3))]", "criterion[make(0)](out, y)", id="no-name"
    ),
    pytest.param(
        "nn.CrossEntropyLoss(ignore_index=0)", "criterion(out, make(y))", id="target-is-computed"
    ),
]


@pytest.mark.parametrize(("criterion", "call"), UNWEIGHED)
def test_a_mean_whose_terms_cannot_be_counted_is_named(
    criterion: str, call: str, tmp_path: Path
) -> None:
    start = f"make = torch.nn.functional.one_hot\ncriterion = {criterion}"
    assert fixes(f"loss = {call}", tmp_path, start) == ["note"]


RIGHT = [
    pytest.param("loss = each.sum() / len(x)", id="samples"),
    pytest.param("loss = each.sum() / (x.size(0) * x.size(1))", id="entries"),
    pytest.param("loss = each.sum() / each.numel()", id="all-entries"),
    pytest.param("loss = each.sum() / torch.numel(each)", id="all-entries-function"),
    pytest.param("loss = ((each * mask).sum(1) / mask.sum(1)).mean()", id="per-sample"),
    pytest.param(
        "with torch.no_grad():\n    ratio = (each * mask).sum() / mask.sum()\nloss = each.mean()",
        id="only-shown",
    ),
]


@pytest.mark.parametrize("body", RIGHT)
def test_counts_that_are_equal_need_nothing(body: str, tmp_path: Path) -> None:
    assert fixes(body, tmp_path) == []


def test_a_count_also_taken_with_gradients_in_an_evaluation_is_left(tmp_path: Path) -> None:
    head = "def masked(each, mask):\n    return (each * mask).sum() / mask.sum()\n"
    end = "loss = masked(each, mask)"
    plain = "for x, y, mask in held:\n    print(masked(net(x).mean(2), mask))"
    assert fixes(end, tmp_path, plain, head) == ["note"]
    shown = f"with torch.no_grad():\n{indent(plain, '    ')}"
    assert fixes(end, tmp_path, shown, head) == ["per_rank_count(mask.sum())"]


def test_an_evaluation_that_adds_up_such_means_is_dealt_by_batches(tmp_path: Path) -> None:
    text = """net = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss(ignore_index={ignored})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
rows = TensorDataset(torch.rand(8, 4), torch.zeros(8).long())
loader = DataLoader(rows, 2)
held = DataLoader(rows, 2)
def evaluate():
    net.eval()
    total, seen = 0.0, 0
    with torch.no_grad():
        for x, y in held:
            total += criterion(net(x), y).item() * len(x)
            seen += len(x)
    return total / seen
for epoch in range(3):
    for x, y in loader:
        criterion(net(x), y).backward()
        optimizer.step()
    print(evaluate())
"""
    dealt = facts_of(text.format(ignored="1"), tmp_path / "ignoring")
    assert [site.span.line for site in dealt.dealt] == [9]
    shared = facts_of(text.replace("ignore_index={ignored}", ""), tmp_path / "plain")
    assert (len(shared.sharded), len(shared.dealt)) == (2, 0)
