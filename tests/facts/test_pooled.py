"""Losses that are not followed: when each rank may compute that of the whole batch, and when not.

A wrong "may" here trains something else without a word, so each thing that the gathered values must
not be has a row. The numbers are compared in tests/training.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from ddpify.rules.gradients import ddp401_sum_loss, ddp406_coupled_batch
from tests.facts.marks import facts_of
from tests.projects import judged

HEAD = """import torch.nn.functional as F
def odd(scores, y, *more):
    best = scores.detach().max()
    return ((scores - best) ** 2).sum() / (y + 1).sum().sqrt()
"""
PROGRAM = """{head}
{model}
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
rows = TensorDataset(torch.rand(8, 4), torch.zeros(8).long())
loader = DataLoader(rows, 2{collate})
for x, y in loader:
{body}
    loss.backward()
    optimizer.step()
"""
PLAIN = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)
    def forward(self, x, y=None):
{forward}
"""
ONE = "return self.a(x)"


def fixes(
    body: str, folder: Path, forward: str = ONE, collate: str = "", head: str = ""
) -> list[str]:
    """What the rules put in place of what, and the notes they leave."""
    model = PLAIN.format(forward=indent(forward, " " * 8))
    given = f", collate_fn={collate}" if collate else ""
    text = PROGRAM.format(head=HEAD + head, model=model, collate=given, body=indent(body, " " * 4))
    facts = facts_of(text, folder)
    found = judged(facts, [ddp401_sum_loss.RULE, ddp406_coupled_batch.RULE])
    notes = sorted({"note" for finding in found if not finding.fix})
    return [e.code.replace("{}", facts.text(e.site)) for f in found for e in f.fix] + notes


LISTS = """def together(samples):
    xs, ys = [], []
    for sample in samples:
        xs.append(sample[0])
        ys.append(sample[1])
    return torch.stack(xs), ys
"""
NUMBERED = """def numbered(samples):
    xs, ys = [], []
    for i, sample in enumerate(samples):
        xs.append(sample[0])
        ys.append(torch.full((3,), i))
    return torch.stack(xs), torch.cat(ys)
"""
LISTED = "loss = odd(net(x), [one * 2 for one in y])"
BOTH = ["whole_batch(net(x))", "whole_batch(y)"]
WHOLE = [
    pytest.param("loss = odd(net(x), y)", BOTH, {}, id="plain"),
    pytest.param("loss = 0.5 * odd(net(x), y) + net(x).mean()", BOTH, {}, id="beside-a-mean"),
    pytest.param("loss = odd(y=y, scores=net(x))", [*BOTH[::-1]], {}, id="by-name"),
    pytest.param(
        LISTED,
        ["whole_batch(net(x))", "sum(gather_objects([one * 2 for one in y]), [])"],
        {"collate": "together", "head": LISTS},
        id="lists-of-their-own",
    ),
    pytest.param(
        "loss = odd((net(x), net(-x)), y)",
        ["whole_batch((net(x), net(-x)))", "whole_batch(y)"],
        {},
        id="a-tuple-of-rows",
    ),
]


@pytest.mark.parametrize(("body", "wanted", "more"), WHOLE)
def test_what_has_rows_is_gathered(
    body: str, wanted: list[str], more: dict[str, str], tmp_path: Path
) -> None:
    assert sorted(fixes(body, tmp_path, **more)) == sorted(wanted)


BANK = """class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = torch.zeros(3, 3)
    def forward(self, scores, y):
        self.seen[y] = scores.detach()
        return (scores @ self.seen.t()).mean() + F.cross_entropy(scores, y)
bank = Bank()
"""


def test_what_a_criterion_keeps_of_samples_is_of_all_ranks(tmp_path: Path) -> None:
    got = fixes("loss = bank(net(x), y)", tmp_path, head=BANK)
    assert got == ["whole_batch(net(x))", "whole_batch(y)"]


REFUSED = [
    pytest.param("loss = odd(net(x), y)", {"collate": "numbered", "head": NUMBERED}, id="numbers"),
    pytest.param("loss = odd(net(x), y)", {"collate": "together", "head": LISTS}, id="a-bare-list"),
    pytest.param("loss = odd(net(x), y)", {"collate": "rows.collate"}, id="a-collate-not-read"),
    pytest.param(LISTED, {}, id="a-list-that-torch-collated"),
    pytest.param("loss = odd(net(x)[0], y)", {}, id="no-rows"),
    pytest.param(
        "scores, sizes = net(x)\nloss = odd(sizes, y)",
        {"forward": "return self.a(x), self.b.weight"},
        id="one-of-several-outputs",
    ),
    pytest.param("loss = odd(net(x), y, net)", {}, id="a-model-is-given"),
    pytest.param("loss = odd(net(x), y, torch.rand(2))", {}, id="drawn-by-each-rank"),
    pytest.param("loss = 0\nif y.sum() > 0:\n    loss = odd(net(x), y)", {}, id="by-some-ranks"),
    pytest.param(
        "loss = 0\nfor i in range(int(y.sum())):\n    loss = loss + odd(net(x), y)",
        {},
        id="more-often-by-some",
    ),
]


@pytest.mark.parametrize(("body", "more"), REFUSED)
def test_what_may_have_no_rows_is_not(body: str, more: dict[str, str], tmp_path: Path) -> None:
    assert fixes(body, tmp_path, **more) == ["note"]


INNER = "loss = None\nscores = self.a(x)\nif {}:\n    loss = {}\nreturn scores, loss"
CRITERION = "F.cross_entropy(scores, y, ignore_index=1)"
STEP = "_, loss = net(x, y)"
MEANT = f"global_mean({CRITERION}, (y != 1).sum())"
IN_FORWARD = [
    pytest.param(INNER.format("y is not None", CRITERION), [MEANT], id="ignored"),
    pytest.param(INNER.format("self.training", CRITERION), [MEANT], id="while-it-trains"),
    pytest.param(INNER.format("y is not None", "F.cross_entropy(scores, y)"), [], id="a-mean"),
    pytest.param(
        INNER.format("y is not None", "F.mse_loss(scores, y, reduction='sum')"),
        ["(loss * get_world_size())"],
        id="a-sum",
    ),
    pytest.param(INNER.format("y.sum() > 0", CRITERION), ["note"], id="as-samples-decide"),
    pytest.param(
        "scores = self.a(x)\nloss = F.cross_entropy(scores @ scores.t(), y)\nreturn scores, loss",
        ["note"],
        id="samples-compared",
    ),
    pytest.param(
        "scores = self.a(x)\ny = scores.argmax(1)\n"
        "loss = F.cross_entropy(scores, y)\nreturn scores, loss",
        [],
        id="targets-of-its-own",
    ),
    pytest.param(
        "away = x[:, :3] - self.b.weight[y]\nown = away.pow(2).sum() / x.size(0)\n"
        "scores = self.a(x)\nreturn scores, F.cross_entropy(scores, y) + 0.1 * own",
        [],
        id="in-steps",
    ),
    pytest.param(
        "scores = self.a(x)\nscores = scores - scores.mean(0)\n"
        "return scores, F.cross_entropy(scores, y)",
        ["note"],
        id="compared-with-their-mean",
    ),
    pytest.param(
        "self.seen = 0.9 * self.seen + 0.1 * x.mean(0)\nscores = self.a(x - self.seen)\n"
        "return scores, F.cross_entropy(scores, y)",
        ["note"],
        id="statistics-that-it-keeps",
    ),
    pytest.param(
        "each, use = F.cross_entropy(self.a(x), y, reduction='none'), (y > 1).float()\n"
        "return each, (each * use).sum() / use.sum()",
        ["note"],
        id="a-count-of-its-own",
    ),
    pytest.param(
        "scores = self.a(x).t()\nreturn scores, scores.pow(2).sum() / scores.size(0)",
        ["note"],
        id="over-another-axis",
    ),
]


@pytest.mark.parametrize(("forward", "wanted"), IN_FORWARD)
def test_a_loss_in_the_forward_is_what_its_call_says(
    forward: str, wanted: list[str], tmp_path: Path
) -> None:
    assert fixes(STEP, tmp_path, forward) == wanted


def test_a_loss_in_a_dict_is_what_makes_it(tmp_path: Path) -> None:
    forward = "scores = self.a(x)\nreturn {'loss': F.mse_loss(scores, y), 'scores': scores}"
    assert fixes("loss = net(x, y)['loss']", tmp_path, forward) == []


OWN = """class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()
    @staticmethod
    def backward(ctx, gradient):
        return {}
"""
GRADIENTS = {
    "gradient": [],
    "gradient * ctx.saved_tensors[0], None": [],
    "gradient - gradient.mean(0)": ["note"],
    "gradient / ctx.saved_tensors[0].norm()": ["note"],
}


@pytest.mark.parametrize("backward", GRADIENTS)
def test_a_gradient_of_ones_own_is_of_each_sample_or_not(backward: str, tmp_path: Path) -> None:
    body = "loss = F.cross_entropy(Own.apply(net(x)), y)"
    assert fixes(body, tmp_path, head=OWN.format(backward)) == GRADIENTS[backward]


@pytest.mark.parametrize("length", ["turned.size(0)", "turned.shape[0]", "turned.size()[0]"])
def test_how_long_a_turned_tensor_is_is_no_number_of_samples(length: str, tmp_path: Path) -> None:
    body = f"turned = net(x).transpose(0, 1)\nloss = turned.pow(2).sum() / {length}"
    wanted = "note" if "()" in length else "(loss * get_world_size())"  # a sum over the batch
    assert fixes(body, tmp_path) == [wanted]


def test_a_forward_with_gradients_outside_of_training_is_refused(tmp_path: Path) -> None:
    forward = INNER.format("y is not None", CRITERION)
    body = f"{STEP}\nfor _ in range(int(x.sum())):\n    print(net(x, y))"
    assert fixes(body, tmp_path, forward) == ["note"]


SCALES = "loss = 0\nfor one in net(x):\n    loss = loss + F.cross_entropy(one, y, ignore_index=1)"
OF_EACH = "global_mean(F.cross_entropy(one, y, ignore_index=1), (y != 1).sum())"
OUTPUTS = [
    pytest.param("return [self.a(x), self.b(x)]", [OF_EACH], id="a-list"),
    pytest.param(
        "each = []\nfor part in self.parts:\n    each.append(part(x))\nreturn each",
        [OF_EACH],
        id="filled-by-its-parts",
    ),
    pytest.param(
        "if self.training:\n    return [self.a(x)] + [self.b(x)]\nreturn self.a(x)",
        [OF_EACH],
        id="while-it-trains",
    ),
    pytest.param(
        "each = []\nif x.sum() > 0:\n    each.append(self.a(x))\nreturn each",
        ["note"],
        id="as-samples-decide",
    ),
    pytest.param("return [p(x) for p in self.parts if x.sum() > 0]", ["note"], id="filtered"),
]


@pytest.mark.parametrize(("forward", "wanted"), OUTPUTS)
def test_ranks_go_over_equally_many_outputs(
    forward: str, wanted: list[str], tmp_path: Path
) -> None:
    assert fixes(SCALES, tmp_path, forward) == wanted


LOGS = """def logs(x):
    axis = len(x.size()) - 1
    top, _ = torch.max(x, dim=axis, keepdim=True)
    return x - top - torch.log(torch.sum(torch.exp(x - top), dim=axis, keepdim=True))
"""


@pytest.mark.parametrize("with_them", ["net(x) * logs(net(x))", "net(x) + own"])
def test_rows_of_all_ranks_do_not_meet_those_of_one(with_them: str, tmp_path: Path) -> None:
    body = f"own = logs(net(x))\nloss = ({with_them}).sum(1).mean()"
    found = fixes(body, tmp_path, head=LOGS)
    assert not any("whole_batch(net(x))" in one for one in found)
