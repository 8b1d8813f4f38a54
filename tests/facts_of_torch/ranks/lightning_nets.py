"""A module, its data and a Trainer of two processes."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from tests.facts_of_torch.ranks.small import Sum

warnings.simplefilter("ignore")


def numbers(count: int) -> DataLoader:
    """1, 2, … one by one."""
    return DataLoader(torch.arange(1.0, count + 1).reshape(count, 1), batch_size=1)


class Net(L.LightningModule):
    """w x summed up; notes the samples it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Sum()
        self.given: list[float] = []
        self.metric = MeanMetric()

    def training_step(self, x: torch.Tensor, index: int) -> Any:
        self.given += x.flatten().tolist()
        return self.net(x).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def trainer_of(**options: Any) -> L.Trainer:
    """One that is quiet, and whose processes give up after 3 s."""
    strategy = DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=3))
    quiet = dict.fromkeys(
        ("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary"), False
    )
    given = {"accelerator": "cpu", "devices": 2, "strategy": strategy, "max_epochs": 1}
    return L.Trainer(**{**quiet, **given, **options})


def shards() -> ModelParallelStrategy:
    """A part of each weight in each process."""
    return ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
