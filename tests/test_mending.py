"""What the reading as several ranks finds in a result is mended where that is sure to help."""

from pathlib import Path

from ddpify import pipeline
from ddpify.outcome import Outcome
from ddpify.settings import Settings

HEAD = """import json
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
DATA = "data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))\n"
TRAINING = """loader = DataLoader(data, batch_size=8, shuffle=True)
net = nn.Linear(4, 2)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
best = 0
for epoch in range(3):
    for x, y in loader:
        sgd.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        sgd.step()
"""
FUNCTIONS = """def keep(name, value):
    with open(name, "w") as file:
        json.dump(value, file)
def kept(name):
    with open(name) as file:
        return json.load(file)
def found(folder):
    return [float(name) for name in os.listdir(folder)][0]
"""


def migrated(folder: Path, **files: str) -> Outcome:
    (folder / "requirements.txt").write_text("torch\n")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return pipeline.migrate([folder / "train.py"], Settings(whole_batches=False))


def text_of(outcome: Outcome) -> str:
    return next(one.after.decode() for one in outcome.changes if one.path == "train.py")


def test_ranks_wait_for_a_file_that_functions_are_given_the_name_of(tmp_path: Path) -> None:
    uses = (
        'where = os.path.join(os.getcwd(), "sizes.json")\nkeep(where, [1])\nsizes = kept(where)\n'
    )
    outcome = migrated(tmp_path, train=HEAD + FUNCTIONS + DATA + uses + TRAINING)
    assert not outcome.refusals
    assert "keep(where, [1])\nbarrier()\nsizes = kept(where)\n" in text_of(outcome)
    helpers = next(one for one in outcome.changes if one.path == "ddp_utils.py")
    assert "def barrier(" in helpers.after.decode()


def test_rank_0_decides_from_the_files_that_it_finds(tmp_path: Path) -> None:
    decides = """    size = found("results")
    if size > best:
        best = size
        torch.save(net.state_dict(), "best.pt")
"""
    outcome = migrated(tmp_path, train=HEAD + FUNCTIONS + DATA + TRAINING + decides)
    assert not outcome.refusals
    assert "    if broadcast(size > best):\n" in text_of(outcome)
