"""Numbers that a progress bar shows: those of all ranks where the bar goes over the epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import migrated, put

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm, trange

net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.rand(8, 4), torch.rand(8, 1)), 2)
epochs = trange(3)
for epoch in epochs:
    total = 0.0
    steps = {steps}
    for x, y in steps:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
{shown}
"""
SHOWN = {
    "over epochs": ("loader", "    epochs.set_postfix(loss=total / len(loader))", True),
    "over batches": ("tqdm(loader)", "        steps.set_postfix(loss=loss.item())", False),
    "over epochs, in each step": ("loader", "        epochs.set_postfix(loss=loss.item())", False),
}


@pytest.mark.parametrize(("steps", "shown", "reduced"), SHOWN.values(), ids=SHOWN)
def test_once_an_epoch_a_bar_shows_the_number_of_all(
    steps: str, shown: str, reduced: bool, tmp_path: Path
) -> None:
    script = put({"train.py": TRAIN.format(steps=steps, shown=shown)}, tmp_path) / "train.py"
    migrated(script)
    assert ("reduce_mean(" in script.read_text()) is reduced


def test_a_call_that_may_be_another_one_is_not_given_its_argument(tmp_path: Path) -> None:
    text = TRAIN.format(steps="draw(loader)", shown="    pass")
    chosen = "draw = tqdm if len(loader) > 9 else list\nepochs = "
    script = put({"train.py": text.replace("epochs = ", chosen)}, tmp_path) / "train.py"
    migrated(script)
    assert "steps = draw(loader)\n" in script.read_text()


def test_what_a_bar_counts_itself_is_there_on_rank_0_alone(tmp_path: Path) -> None:
    shown = "        epochs.set_description(f'{epochs.n}')\nprint(epochs.n)"
    text = TRAIN.format(steps="tqdm(loader)", shown=f"{shown}\n")
    script = put({"train.py": text}, tmp_path) / "train.py"
    migrated(script)
    assert "epochs = trange(3)\n" in script.read_text()  # all ranks ask it once more
    text = TRAIN.format(steps="tqdm(loader)", shown=shown.partition("\n")[0])
    script.write_text(text)
    migrated(script)
    assert "        if is_main_process():\n            epochs.set_desc" in script.read_text()


def test_a_text_that_is_stored_in_a_bar_needs_no_bar_on_each_rank(tmp_path: Path) -> None:
    text = TRAIN.format(steps="tqdm(loader)", shown="        epochs.desc = str(epoch)")
    script = put({"train.py": text}, tmp_path) / "train.py"
    migrated(script)
    assert "epochs = trange(3, disable=not is_main_process())\n" in script.read_text()
