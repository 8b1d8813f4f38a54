"""Losses that models of `transformers` compute: over samples, over labels that count, unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.projects import put

TEXT = """import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification as Model

model = Model.from_pretrained("tiny")
ids, kinds = torch.randint(0, 99, (64, 12)), torch.randint(0, 2, (64,))
loader = DataLoader(TensorDataset(ids, kinds), batch_size=8, shuffle=True)
solver = torch.optim.AdamW(model.parameters(), lr=1e-4)
for epoch in range(3):
    for words, labels in loader:
        solver.zero_grad()
        outputs = model(words, attention_mask=words > 0, labels=labels)
        loss = outputs.loss
        loss.backward()
        solver.step()
"""
CLASS = "AutoModelForSequenceClassification"


def migrated(tmp_path: Path, *changes: tuple[str, str]) -> Outcome:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return migrate([put({"main.py": text}, tmp_path) / "main.py"], Settings())


def text_of(outcome: Outcome) -> str:
    assert not outcome.refusals
    return next(c.after.decode() for c in outcome.changes if c.path == "main.py")


@pytest.mark.parametrize("loss", ["outputs.loss", "outputs[0]", 'outputs["loss"]'])
def test_a_mean_over_samples_stays(tmp_path: Path, loss: str) -> None:
    text = text_of(migrated(tmp_path, ("outputs.loss", loss)))
    assert f"loss = {loss}\n" in text
    assert "per_rank_batch_size(8)" in text


@pytest.mark.parametrize(
    ("name", "labels"),
    [("AutoModelForMaskedLM", "labels"), ("AutoModelForCausalLM", "labels[..., 1:]")],
)
def test_a_mean_over_labels_is_one_over_those_of_all_ranks(
    tmp_path: Path, name: str, labels: str
) -> None:
    text = text_of(migrated(tmp_path, (CLASS, name)))
    assert f"loss = global_mean(outputs.loss, ({labels} != -100).sum())" in text


@pytest.mark.parametrize("name", ["AutoModelForTokenClassification", "XLNetLMHeadModel"])
def test_what_others_divide_by_is_not_known(tmp_path: Path, name: str) -> None:
    refusals = migrated(tmp_path, (CLASS, name)).refusals
    assert any("could not be shown to be a mean" in one.message for one in refusals)


def test_without_labels_it_gives_rows(tmp_path: Path) -> None:
    score = "torch.nn.functional.cross_entropy(outputs.logits, labels)"
    changes = ((", labels=labels", ""), ("outputs.loss", score))
    assert f"loss = {score}\n" in text_of(migrated(tmp_path, *changes))
