"""Functions that only print and write are run by rank 0 alone, whole; others are not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ddpify.facts.marks_left import changes
from tests.facts.marks import facts_of

TRAIN = """
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 1)), 2)
history, options = [], {}
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    report(epoch)
"""
SHOWN = "    print(epoch)\n    print(len(history))\n"
CHANGES = {
    "an argument's entry, by another function": "    keep(options, epoch)\n",
    "an argument's list": "    history.append(epoch)\n",
    "a global's entry": '    options["epoch"] = epoch\n',
    "a global": "    global epochs_done\n    epochs_done = epoch\n",
    "an attribute": "    net.epoch = epoch\n",
    "a part of what it is given": (
        "    for group in optimizer.param_groups:\n        group['lr'] = group['lr'] * 0.8\n"
    ),
    "a part under a second name": (
        "    groups = list(optimizer.param_groups)\n    first = groups[0]\n    first['lr'] = 0.1\n"
    ),
    "parameters in place": "    net.weight.data.mul_(0.5)\n",
    "what unread code changes": "    hidden.decay(optimizer)\n",
    "the mode of the model": "    net.eval()\n",
    "the random state": "    torch.manual_seed(epoch)\n",
    "the end of the program": "    sys.exit(0)\n",
}
LEAVES_NOTHING = {
    "prints": "",
    "a list of its own": "    rows = []\n    rows.append(epoch)\n",
    "an entry of a table of its own": (
        "    table = {'epoch': epoch, 'rows': list(history)}\n    table['rows'] = len(history)\n"
    ),
    "a file of its own": '    with open("log.txt", "w") as log:\n        log.write("x")\n',
    "a folder": '    os.makedirs("runs")\n',
    "a global of its own": "    global last\n    last = epoch\n",
}


def helpers(body: str, tmp_path: Path) -> list[str]:
    text = "def keep(kept, epoch):\n    kept['epoch'] = epoch\n"
    text += (
        f"import os\nimport sys\nimport hidden\nlast = 0\ndef report(epoch):\n{body}{SHOWN}{TRAIN}"
    )
    text += "print(globals().get('x'), epochs_done)\n" if "epochs_done" in body else ""
    return [info.name for info in facts_of(text, tmp_path).helpers]


@pytest.mark.parametrize("body", LEAVES_NOTHING.values(), ids=LEAVES_NOTHING)
def test_a_function_that_leaves_nothing_behind_is_gated_whole(body: str, tmp_path: Path) -> None:
    assert helpers(body, tmp_path) == ["report"]


@pytest.mark.parametrize("body", CHANGES.values(), ids=CHANGES)
def test_a_function_that_other_ranks_would_miss_is_not(body: str, tmp_path: Path) -> None:
    assert helpers(body, tmp_path) == []


def test_an_argument_that_is_called_like_a_module_is_none(tmp_path: Path) -> None:
    body = "    first = history.first\n    first['seen'] = epoch\n"
    train = TRAIN.replace("report(epoch)", "report(epoch, history)")
    text = f"import history\ndef report(epoch, history):\n{body}{SHOWN}{train}"
    assert not facts_of(text, tmp_path).helpers
    assert facts_of(text.replace(body, ""), tmp_path).helpers


@pytest.mark.parametrize(("name", "changed"), [("_init_", False), ("xavier_normal_", True)])
def test_functions_that_change_what_they_are_given(name: str, changed: bool) -> None:
    (statement,) = ast.parse(f"{name}(weight)").body
    assert isinstance(statement, ast.Expr)
    assert changes(statement.value, set()) is changed
