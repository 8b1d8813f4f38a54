"""Reductions along the last axis, of tensors that have one axis, several, or one perhaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.facts.values import Measure
from tests.facts.test_measures import measure

MEAN, SUM, MIXED = Measure.MEAN, Measure.SUM, Measure.MIXED
TERMS = "l = F.mse_loss(out, x, reduction='none')\nloss = "
CLASSES = "l = F.cross_entropy(out[:, 0], y, reduction='none')\nloss = "
ROWS = [
    ("all-in-one-row", f"{TERMS}l.view(-1).sum(-1).mean()", SUM),
    ("all-in-one-row-by-a-tuple", f"{TERMS}l.reshape((-1,)).sum(dim=-1).mean()", SUM),
    ("flat", f"{TERMS}torch.sum(torch.flatten(l), -1).mean()", SUM),
    ("flat-and-scaled", f"{TERMS}(2 * l.flatten()).abs().sum(-1).mean()", SUM),
    ("mean-of-all-in-one-row", f"{TERMS}l.view(-1).mean(-1).sum()", MEAN),
    ("one-row-made-two-axes", f"{TERMS}l.view(-1).view(len(x), -1).sum(-1).mean()", MEAN),
    ("one-row-made-a-column", f"{TERMS}l.view(-1)[:, None].sum(-1).mean()", MEAN),
    ("one-row-made-a-column-by-name", f"{TERMS}l.ravel().unsqueeze(-1).sum(-1).mean()", MEAN),
    ("rows-of-samples", f"{TERMS}l.view(len(l), -1).sum(-1).mean()", MEAN),
    ("rows-then-one-number-each", f"{TERMS}l.view(len(l), -1).sum(1).sum(-1).mean()", SUM),
    ("kept", f"{TERMS}l.view(len(l), -1).sum(1, keepdim=True).sum(-1).mean()", MEAN),
    ("one-row-perhaps", f"{TERMS}l.squeeze().sum(-1).mean()", MIXED),
    ("one-number-each-perhaps", f"{TERMS}l.sum(1).sum(-1).mean()", MIXED),
    ("first-column", "loss = out[:, 0].sum(-1).mean()", MIXED),
    ("first-column-kept", "loss = out[:, :1].sum(-1).mean()", MEAN),
    ("own-entry", "loss = out[range(len(y)), y].sum(-1).mean()", MIXED),
    ("terms-of-classes", f"{CLASSES}l.sum(-1).mean()", MIXED),
    (
        "terms-of-a-criterion",
        f"l = nn.MSELoss(reduction='none')(out, x)\nloss = {'l.sum(-1).mean()'}",
        MEAN,
    ),
    ("alike", "loss = F.cosine_similarity(out, x).sum(-1).mean()", MIXED),
    ("largest-of-one-row", f"{TERMS}l.view(-1).max(-1)[0].mean()", MIXED),
    ("shares-of-one-row", f"{TERMS}l.squeeze().softmax(-1).pow(2).mean()", MIXED),
    ("shares-of-rows", f"{TERMS}l.softmax(-1).pow(2).mean()", MEAN),
    ("shares-in-another-view", f"{TERMS}l.view(3, -1).log_softmax(-1).mean()", MIXED),
    ("samples-side-by-side", f"{TERMS}l.view(-1, len(x)).sum(-1).pow(2).mean()", MIXED),
    ("rows-of-four", f"{TERMS}l.view(-1, 4).sum(-1).mean()", MEAN),
]


@pytest.mark.parametrize(("body", "wanted"), [pytest.param(b, w, id=i) for i, b, w in ROWS])
def test_the_last_axis_may_be_that_of_the_samples(
    body: str, wanted: Measure, tmp_path: Path
) -> None:
    assert measure(body, tmp_path) is wanted
