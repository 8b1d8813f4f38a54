"""Batches that are objects: which of their fields have a row for each sample.

Where one may not, ranks share whole batches out (`split_batches`), as before.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

PROGRAM = """import torch
from dataclasses import dataclass
from torch import nn
from torch.utils.data import DataLoader
from typing import NamedTuple

{head}

def collate(samples):
    image = {image}
    return Batch(image, torch.stack([one[1] for one in samples]))


data = [(torch.randn(6), torch.randn(3)) for _ in range(16)]
loader = DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate)
net = nn.Linear(6, 3)
descent = torch.optim.SGD(net.parameters(), lr=0.01)
for batch in loader:
    loss = ((net(batch.image) - batch.label) ** 2).sum()
    descent.zero_grad()
    loss.backward()
    descent.step()
"""
FIELDS = """    image: torch.Tensor
    label: torch.Tensor
"""
NAMED = f"class Batch(NamedTuple):\n{FIELDS}"
CLASSES = {
    "a named tuple": NAMED,
    "a data class": f"@dataclass\nclass Batch:\n{FIELDS}",
    "a class": """class Batch:
    def __init__(self, image, label):
        self.image, self.label = image, label
""",
}
STACKED = "torch.stack([one[0] for one in samples])"
OTHERWISE = {
    "filled up": "nn.utils.rnn.pad_sequence([one[0] for one in samples], batch_first=True)",
    "as long as the longest": "torch.stack([nn.functional.pad(one[0], (0, max(len(o[0]) for o in"
    " samples) - len(one[0]))) for one in samples])",
    "as long as the first": "torch.tensor([list(one[0]) + [0] * (len(samples[0][0])"
    " - len(one[0])) for one in samples])",
    "room for the first": "torch.zeros(len(samples), len(samples[0][0]))",
    "end to end": "torch.cat([one[0] for one in samples])",
    "along another axis": "torch.stack([one[0] for one in samples], 1)",
    "one sample": "samples[0][0]",
    "compared": f"{STACKED} - {STACKED}.mean(0)",
}


def migrated(folder: Path, head: str = NAMED, image: str = STACKED) -> str:
    """The program once migrated."""
    text = PROGRAM.format(head=head, image=image)
    outcome = migrate([put({"main.py": text}, folder) / "main.py"], Settings())
    assert not outcome.refusals
    return "".join(one.after.decode() for one in outcome.changes if one.path == "main.py")


@pytest.mark.parametrize("head", CLASSES.values(), ids=CLASSES)
def test_a_sum_over_the_samples_of_an_object_is_scaled(head: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, head)
    assert "(loss * get_world_size()).backward()" in text
    assert "per_rank_batch_size(4)" in text


@pytest.mark.parametrize("image", OTHERWISE.values(), ids=OTHERWISE)
def test_fields_that_may_have_no_row_each(image: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, image=image)
    assert "get_world_size" not in text
    assert "split_batches" in text
