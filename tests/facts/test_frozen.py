"""What happens to a model before it is trained: the wrap comes after it, and on every rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.base import Example
from ddpify.rules.examples import SINGLE, changed
from tests.projects import migrated, put_example

BUILT = "    adam = torch.optim.Adam(net.parameters())\n"
SOME = '    for name, p in net.named_parameters():\n        if "2" in name:\n            '


def rewritten(example: Example, folder: Path) -> str:
    put_example(example, folder)
    migrated(folder / "main.py")
    return (folder / "main.py").read_text()


@pytest.mark.parametrize(
    "frozen",
    [
        pytest.param(f"{SOME}p.requires_grad_(False)\n", id="called"),
        pytest.param(f"{SOME}p.requires_grad = False\n", id="set"),
        pytest.param(
            "    for p in net[0].parameters():\n        p.requires_grad = False\n", id="part"
        ),
        pytest.param(
            "    if opt.bs:\n        for p in net[0].parameters():\n"
            "            p.requires_grad = False\n",
            id="under a condition",
        ),
    ],
)
def test_a_model_is_wrapped_after_a_part_is_frozen(frozen: str, tmp_path: Path) -> None:
    after = rewritten(changed(SINGLE, (BUILT, frozen + BUILT)), tmp_path)
    assert after.index("requires_grad") < after.index("wrap_model(net)") < after.index("Adam(")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("print(net.load_state_dict(torch.load('net.pth')))", id="loads"),
        pytest.param("print('rate', slower(adam))", id="a function that sets the rate"),
        pytest.param("print(f'left {queue.pop()}')", id="takes"),
        pytest.param("print(next(batches))", id="a step of an iterator"),
    ],
)
def test_what_a_printed_value_changes_is_changed_on_every_rank(line: str, tmp_path: Path) -> None:
    slower = "def slower(adam):\n    for group in adam.param_groups:\n        group['lr'] /= 2\n"
    example = changed(
        SINGLE,
        ("def accuracy", f"{slower}    return group['lr']\n\n\ndef accuracy"),
        ("    for round_", "    queue, batches = list(range(9)), iter(range(9))\n    for round_"),
        ('        print("round"', f'        {line}\n        print("round"'),
    )
    after = rewritten(example, tmp_path)
    shown = line[6:].replace("net.load", "unwrap(net).load").partition("torch.load")[0]
    assert f"print_on_main({shown}" in after.replace("(\n" + 12 * " ", "(")
