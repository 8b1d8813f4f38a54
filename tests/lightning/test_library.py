"""What Lightning itself does on two processes, where a migrated project has to know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lightning.runs import train

pytest.importorskip("lightning")
pytestmark = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(120)]

SCRIPT = """
import json
import sys

import lightning as L
import torch
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric


class Ones(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.metric = MeanMetric()

    def val_dataloader(self):
        share = range(self.global_rank, int(sys.argv[1]), self.trainer.world_size)
        return DataLoader([torch.ones(1) for _ in share], batch_size=8)

    def validation_step(self, batch, batch_idx):
        self.metric.update(batch.mean(), len(batch))
        self.log("synced", batch.mean(), on_epoch=True, sync_dist=True)
        self.log("metric", self.metric, on_epoch=True)


trainer = L.Trainer(
    accelerator="cpu", devices=1, use_distributed_sampler=False, logger=False,
    enable_progress_bar=False,
)
trainer.validate(Ones(), verbose=False)
if trainer.is_global_zero:
    with open("metrics.json", "w") as file:
        json.dump({key: float(value) for key, value in trainer.callback_metrics.items()}, file)
"""


@pytest.mark.parametrize(
    ("samples", "synced"),
    [(4, 1.0), (3, 1.5), pytest.param(297, 297 / 296, id="as many as the fixture has")],
)
def test_a_synced_mean_of_an_odd_number(samples: int, synced: float, tmp_path: Path) -> None:
    """``sync_dist=True`` divides by the mean number of samples of a rank, rounded down.

    The mean of nothing but ones is then more than one. A metric of torchmetrics is right.
    """
    (tmp_path / "ones.py").write_text(SCRIPT)
    run = train(tmp_path, tmp_path / "seen", str(samples), processes=2, script="ones.py")
    assert run.finished, run.output
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["synced"] == pytest.approx(synced, abs=1e-6)
    assert metrics["metric"] == pytest.approx(1.0, abs=1e-6)
