"""Programs whose batches stay whole on every rank: where a model may compute its rows of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

# A line search goes by the loss: by that of a share it would take other steps on each rank.
TEXT = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 4)

    def forward(self, x):
        return self.body(x)


def compare(rows, kinds):
    order = torch.argsort(rows.norm(dim=1))
    return (rows[order][1:] - rows[order][:-1]).square().sum() / rows.std().clamp(min=0.1)


net = Net()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64)), 16, shuffle=True)
solver = torch.optim.LBFGS(net.parameters(), lr=0.1)
best = 9e9
for epoch in range(3):
    total = 0.0
    for x, y in loader:

        def closure():
            solver.zero_grad()
            loss = compare(net(x), y)
            loss.backward()
            return loss

        loss = solver.step(closure)
        total += loss.item()
    print(epoch, total / len(loader))
    if total < best:
        best = total
        torch.save(net.state_dict(), "best.pt")
"""


def migrated(tmp_path: Path, *changes: tuple[str, str], **settings: bool) -> Outcome:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return migrate([put({"main.py": text}, tmp_path) / "main.py"], Settings(**settings))


def text_of(outcome: Outcome) -> str:
    assert not outcome.refusals
    return next(c.after.decode() for c in outcome.changes if c.path == "main.py")


def test_what_cannot_be_shared_out_stays_whole_on_every_rank(tmp_path: Path) -> None:
    outcome = migrated(tmp_path)
    text = text_of(outcome)
    assert "net = split_batches(wrap_model(net))" in text
    assert "loader = share_loading(DataLoader(" in text
    assert "reduce_" not in text
    assert "per_rank" not in text
    assert 'save_on_main(unwrap(net).state_dict(), "best.pt")' in text
    assert any("every rank trains on whole batches" in note.message for note in outcome.notes)
    assert any("LBFGS decides" in note.message for note in outcome.notes)  # why


def test_a_program_that_has_it_is_left_as_it_is(tmp_path: Path) -> None:
    text = text_of(migrated(tmp_path))
    again = migrate([put({"main.py": text}, tmp_path / "again") / "main.py"], Settings())
    assert not again.refusals
    assert "main.py" not in {change.path for change in again.changes}


def test_the_user_may_want_a_refusal(tmp_path: Path) -> None:
    assert migrated(tmp_path, whole_batches=False).refusals
    assert not migrated(tmp_path / "as well", whole_batches=True).refusals


FORWARD = "        return self.body(x)\n"
REFUSED = {
    "a loss": (FORWARD, "        return self.body(x).mean()\n"),
    "neighbours": (FORWARD, "        x = self.body(x)\n        return x - x.mean(0)\n"),
    "turned": (  # split_batches tries out which axis: not where it draws
        FORWARD,
        "        return nn.functional.dropout(self.body(x)).transpose(0, 1)\n",
    ),
    "kept inside": (FORWARD, "        self.seen = self.body(x)\n        return self.seen\n"),
    "looked at": ("compare(net(x), y)", "compare(net(x), y) + net.seen.mean()"),
    "a loss beside": (
        FORWARD,
        "        rows = self.body(x)\n        loss = 0.1 * nn.functional.mse_loss(rows, x[:, :4])\n"
        "        return loss, rows\n",
    ),
    "two outputs": ("compare(net(x), y)", "compare(net(x)[1], y)"),
    "a loss in a dict": (
        FORWARD,
        "        given = {'rows': self.body(x)}\n        if self.training:\n"
        "            given['all'] = {'l': nn.functional.nll_loss(given['rows'], x[:, 0].long())}\n"
        "        return given\n",
    ),
    "its rows": ("compare(net(x), y)", "compare(net(x)['rows'], y)"),
    "sorted": (
        FORWARD,
        "        _, order = x[:, 0].sort(dim=0)\n        return self.body(x[order])\n",
    ),
    "a mean": (
        FORWARD,
        "        rows = self.body(x)\n        out = rows + self.body.bias.data\n"
        "        self.body.bias.data.add_(rows.detach().mean(0))\n        return out\n",
    ),
    "a hook": ("net = Net()\n", "net = Net()\nnet.body.register_forward_hook(print)\n"),
    "an environment": (
        "net = Net()\n",
        "import gym\n\nnet = Net()\nworld = gym.make('CartPole-v0')\n",
    ),
    "unknown": ("compare(net(x), y)", "compare(net(*[x]), y)"),
}


DROPPED = "nn.functional.dropout(self.body(x), 0.1, self.training)"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([REFUSED["a loss"]], id="gives a loss"),
        pytest.param([REFUSED["neighbours"]], id="compares samples"),
        pytest.param([REFUSED["turned"]], id="moves the axis"),
        pytest.param([REFUSED["kept inside"], REFUSED["looked at"]], id="looked into"),
        pytest.param([REFUSED["a loss beside"], REFUSED["two outputs"]], id="gives a loss, too"),
        pytest.param([REFUSED["a loss in a dict"], REFUSED["its rows"]], id="has a loss, too"),
        pytest.param([REFUSED["sorted"]], id="gives another order"),
        pytest.param([REFUSED["a mean"]], id="keeps a mean"),
        pytest.param([REFUSED["a hook"]], id="hook"),
        pytest.param([REFUSED["an environment"]], id="environment"),
        pytest.param([REFUSED["unknown"]], id="not followed"),
    ],
)
def test_a_model_that_is_more_than_a_function_of_each_row_is_not_split(
    tmp_path: Path, changes: list[tuple[str, str]]
) -> None:
    assert migrated(tmp_path, *changes).refusals


def test_where_outputs_have_their_samples_is_tried_out(tmp_path: Path) -> None:
    turned = (FORWARD, "        return self.body(x).transpose(0, 1)\n")
    told = (turned[0], turned[1].replace("self.body(x)", DROPPED))
    assert not migrated(tmp_path / "turned", turned).refusals
    assert not migrated(tmp_path / "told", told).refusals


def test_a_model_that_puts_its_rows_back_is_split(tmp_path: Path) -> None:
    back = "        order = x[:, 0].argsort(dim=0)\n        rows = self.body(x[order])\n"
    back += "        return rows[order.argsort(dim=0)]\n"
    assert not migrated(tmp_path, (FORWARD, back)).refusals


LOOKS = """net = Net()
seen = {"calls": 0}


def look(module, given, result):
    seen["calls"] += 1
    print(type(module).__name__, given[0].dtype, tuple(result.shape[1:]))


net.body.register_forward_hook(look)
"""


def test_a_hook_that_looks_at_shapes_is_no_obstacle(tmp_path: Path) -> None:
    assert not migrated(tmp_path / "looks", ("net = Net()\n", LOOKS)).refusals
    keeps = LOOKS.replace('["calls"] += 1', '["last"] = result')
    assert migrated(tmp_path / "keeps", ("net = Net()\n", keeps)).refusals


def test_time_first_is_not_split(tmp_path: Path) -> None:
    recurrent = ("self.body = nn.Linear(8, 4)", "self.body = nn.GRU(8, 4)")
    first = (FORWARD, "        return self.body(x)[0]\n")
    assert migrated(tmp_path, recurrent, first).refusals


def test_a_batch_of_one_sample_is_no_work_for_several_ranks(tmp_path: Path) -> None:
    outcome = migrated(tmp_path, (", 16, shuffle=True)", ", 1, shuffle=True)"))
    assert any("a batch of one sample" in refusal.message for refusal in outcome.refusals)


def test_others_load_whole_batches(tmp_path: Path) -> None:
    collate = (
        "16, shuffle=True)",
        "16, shuffle=True, collate_fn=torch.utils.data.default_collate)",
    )
    text = text_of(migrated(tmp_path, collate))
    assert "split_batches" in text
    assert "share_loading" not in text
