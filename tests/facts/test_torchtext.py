"""Batches of torchtext: along which axis their fields hold samples, and what an axis says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.link import analyze
from ddpify.facts.model import Facts
from ddpify.project import Project
from tests.projects import put

PROGRAM = """import torch
from torch import nn
from torchtext.legacy import data, datasets
from elsewhere import words, open_file

text = data.Field(lower=True)
label = data.Field(sequential=False)
train, valid = datasets.SNLI.splits(text, label)
batches, held_out = data.BucketIterator.splits((train, valid), batch_size=32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(900, 8), nn.Linear(8, 3)

    def forward(self, batch):
        return self.out(self.embed(batch.text).mean(0))


net = Net()
adam = torch.optim.Adam(net.parameters())
for turn in range(5):
    right, seen = 0, 0
    for batch in batches:
        out = net(batch)
        right += (out.argmax(1) == batch.label).sum().item()
        seen += batch.batch_size
        loss = nn.functional.cross_entropy(out, batch.label)
        adam.zero_grad()
        loss.backward()
        adam.step()
    print(turn, right / seen)
"""
FIRST = ("lower=True", "lower=True, batch_first=True")


def facts_of(folder: Path, *changes: tuple[str, str]) -> Facts:
    text = PROGRAM
    for change in changes:
        assert change[0] in text
        text = text.replace(*change)
    facts = analyze(Project.of(put({"main.py": text}, folder) / "main.py"))
    assert facts is not None
    return facts


@pytest.mark.parametrize(
    ("changes", "axis"),
    [
        pytest.param((), 1, id="by-default"),
        pytest.param((FIRST,), 0, id="batch-first"),
        pytest.param((("lower=True", "include_lengths=True"),), 1, id="with-lengths"),
        pytest.param((("sequential=False", ""),), 1, id="labels-of-words"),
        pytest.param((FIRST, ("sequential=False", "sequential=False, use_vocab=False")), 0, id="0"),
        pytest.param((("data.Field(seq", "data.LabelField(seq"),), 1, id="label-field"),
        pytest.param(
            (
                (
                    "datasets.SNLI.splits(text, label)",
                    "data.TabularDataset.splits(fields=[('x', text)])",
                ),
            ),
            1,
            id="in-a-list",
        ),
        pytest.param(
            (
                (
                    "train, valid = datasets.SNLI.splits(text, label)",
                    "train = data.Dataset(x, {1: text})",
                ),
                (".splits((train, valid), b", "(train, b"),
                ("batches, held_out", "batches"),
                ("from elsewhere", "x = []\nfrom elsewhere"),
            ),
            1,
            id="one-iterator",
        ),
    ],
)
def test_the_axis_of_samples_is_that_of_all_fields(
    changes: tuple[tuple[str, str], ...], axis: int, tmp_path: Path
) -> None:
    (division,) = facts_of(tmp_path, *changes).divisions
    assert (division.names, division.axis) == (("batch.text", "batch.label"), axis)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("lower=True", "batch_first=words"), id="a-setting"),
        pytest.param(("lower=True", "**words"), id="in-a-dict"),
        pytest.param(("lower=True", "postprocessing=words"), id="processed"),
        pytest.param(("sequential=False", "batch_first=True"), id="two-ways"),
        pytest.param(("sequential=False", "sequential=False, use_vocab=False"), id="as-given"),
        pytest.param(
            ("train, valid = data", "text.batch_first = True\ntrain, valid = data"), id="set"
        ),
        pytest.param(("data.Field(lower=True)", "open_file(words)"), id="unread"),
        pytest.param(("data.Field(lower=True)", "torch.load(words)"), id="loaded"),
        pytest.param(("data.Field(lower=True)", "data.NestedField(lower=True)"), id="nested"),
    ],
)
def test_fields_that_may_be_otherwise_prove_nothing(
    change: tuple[str, str], tmp_path: Path
) -> None:
    ((_, why),) = facts_of(tmp_path, change).undivided
    assert "nothing says along which axis" in why


@pytest.mark.parametrize(
    ("count", "divided"),
    [
        pytest.param("batch.batch_size", True, id="of-the-batch"),
        pytest.param("batch.text.size(1)", False, id="size"),
        pytest.param("batch.text.shape[0]", False, id="shape"),
        pytest.param("len(batch.text)", False, id="length"),
        pytest.param("out.view(batch.label.size(), 3).ge(0).sum().item()", True, id="to-shape"),
    ],
)
def test_lengths_are_no_counts_where_samples_lie_along_another_axis(
    count: str, divided: bool, tmp_path: Path
) -> None:
    found = facts_of(tmp_path, ("seen += batch.batch_size", f"seen += {count}"))
    assert bool(found.divisions) is divided


def test_a_shorter_last_batch_is_named_but_not_of_columns(tmp_path: Path) -> None:
    (bucketed,) = facts_of(tmp_path / "1").divisions
    (columns,) = facts_of(
        tmp_path / "2", ("BucketIterator.splits(", "BPTTIterator.splits(")
    ).divisions
    assert (bucketed.ragged, columns.ragged) == (True, False)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("out.argmax(1)", "out.argmax(0)"), id="other-axis"),
        pytest.param(("out.argmax(1)", "out.t().argmax(1)"), id="turned"),
        pytest.param(("out, batch.label)", "out.t(), batch.label)"), id="turned-for-the-loss"),
        pytest.param(
            ("        loss = ", "        out = out.t()\n        loss = "), id="bound-anew"
        ),
    ],
)
def test_only_axis_1_of_what_cross_entropy_is_given_holds_classes(
    change: tuple[str, str], tmp_path: Path
) -> None:
    ((_, why),) = facts_of(tmp_path, change).undivided
    assert "computed along an axis" in why


def test_what_a_model_computes_of_a_batch_counts_as_its_samples(tmp_path: Path) -> None:
    (end,) = facts_of(tmp_path).ends
    assert set(end.sums) == {"right", "seen"}


SEVERAL = """import torch
from torch import nn



class Lines:
    def __init__(self, lines):
        self.lines, self.at = lines, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= len(self.lines):
            raise StopIteration
        part = self.lines[self.at : self.at + 32]
        self.at += 32
        words = torch.LongTensor([line[0] for line in part])
        return (words, torch.LongTensor([line[2] for line in part])), torch.LongTensor([1])


net = nn.Linear(4, 2)
adam = torch.optim.Adam(net.parameters())
for turn in range(5):
    for words, label in Lines([]):
        adam.zero_grad()
        nn.functional.cross_entropy(net(words), label).backward()
        adam.step()
"""


def test_a_pair_is_no_tensor_that_could_be_divided(tmp_path: Path) -> None:
    entry = put({"main.py": SEVERAL}, tmp_path) / "main.py"
    facts = analyze(Project.of(entry), batch_dim=0)
    assert facts is not None
    ((_, why),) = facts.undivided
    assert "`words` is no tensor but holds several" in why
