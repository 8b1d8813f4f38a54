"""Streams of torchtext's data sets: which become lists, for training and for evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

PROGRAM = """import torch
from torch import nn
from torch.utils.data import DataLoader
from torchtext.datasets import AG_NEWS

train, test = AG_NEWS()
net = nn.Linear(8, 4)
descent = torch.optim.SGD(net.parameters(), lr=1.0)


def collate(batch):
    rows = torch.stack([torch.tensor([float(len(text))] * 8) for _, text in batch])
    return rows, torch.tensor([label - 1 for label, _ in batch])


def train_epoch():
    net.train()
    for rows, labels in DataLoader(train, batch_size=8, collate_fn=collate):
        loss = nn.functional.cross_entropy(net(rows), labels)
        descent.zero_grad()
        loss.backward()
        descent.step()


def evaluate():
    net.eval()
    held_out = DataLoader(test, batch_size=8, collate_fn=collate)
    right = seen = 0
    with torch.no_grad():
        for rows, labels in held_out:
            right += (net(rows).argmax(1) == labels).sum().item()
            seen += len(labels)
    return right / seen


for _ in range(3):
    train_epoch()
    print(evaluate())
"""
TRAINED = (
    "    for rows, labels in DataLoader(train,",
    "    batches = DataLoader(train,",
    "collate_fn=collate):\n        loss",
    "collate_fn=collate)\n    for rows, labels in batches:\n        loss",
)


def migrated(folder: Path, *change: str, settings: Settings | None = None) -> tuple[Outcome, str]:
    text = PROGRAM.replace(*TRAINED[:2]).replace(*TRAINED[2:])
    assert not change or change[0] in text
    entry = put({"main.py": text.replace(*change) if change else text}, folder) / "main.py"
    outcome = migrate([entry], settings or Settings(whole_batches=False))
    texts = [one.after.decode() for one in outcome.changes if one.path == "main.py"]
    return outcome, "".join(texts)


def test_streams_become_lists_that_samplers_deal(tmp_path: Path) -> None:
    outcome, text = migrated(tmp_path)
    assert "train_dataset = map_style(train)\n" in text
    assert "distributed_sampler(train_dataset, shuffle=False" in text
    assert "eval_dataset = map_style(test)\n" in text
    assert "    print_on_main(evaluate())\n" in text, "all ranks read the stream"
    assert "reduce_sum(right, seen)" in text
    memory = [one for one in outcome.findings if "in memory" in one.message]
    assert len(memory) == 2
    for change in outcome.changes:
        (tmp_path / change.path).write_bytes(change.after)
    again = migrate([tmp_path / "main.py"], Settings())
    assert not again.refusals
    assert not any(one.path == "main.py" for one in again.changes)


def test_an_evaluation_on_every_rank_goes_over_the_whole_list(tmp_path: Path) -> None:
    _, text = migrated(tmp_path, settings=Settings(ignore=("DDP205",)))
    assert "held_out = DataLoader(map_style(test), batch_size=8" in text
    assert "reduce_sum(" not in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(("(train, ", "(train, shuffle=True, "), "in its own way", id="shuffled"),
        pytest.param(("(test, ", "(test, num_workers=2, "), "to workers", id="workers"),
        pytest.param(("(train, batch_size=8", "(train, batch_size=None"), "batches", id="single"),
        pytest.param(
            ("train, test = AG", "from torchtext.datasets import CC100\ntrain, test = CC100(), AG"),
            "which takes no sampler",
            id="too-large",
        ),
    ],
)
def test_what_is_no_list_of_the_same_samples_stays_a_stream(
    change: tuple[str, str], why: str, tmp_path: Path
) -> None:
    outcome, text = migrated(tmp_path, *change)
    assert not text
    assert any(why in one.message for one in outcome.refusals)
