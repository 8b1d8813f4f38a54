"""What Lightning does on two processes that torchrun has started."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from tests.facts_of_torch.pairs import groupless
from tests.facts_of_torch.ranks.lightning_nets import Net, numbers, shards, trainer_of
from tests.facts_of_torch.ranks.small import gradients, said


class _Logs(Net):
    """Logs the mean of what it is given to validate: 1, 3, … and 2, 4, …"""

    def validation_step(self, x: torch.Tensor, index: int) -> None:
        self.given += x.flatten().tolist()
        self.log("own", x.mean())
        self.log("synced", x.mean(), sync_dist=True)
        self.log("both", x.mean(), sync_dist=True, rank_zero_only=True)
        self.metric.update(x.mean())
        self.log("metric", self.metric)


@groupless
def logged(rank: int) -> Any:
    """The numbers 1 … 14 are validated: the mean is 7.5."""
    model, trainer = _Logs(), trainer_of()
    trainer.validate(model, numbers(14), verbose=False)
    found = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return {**found, "kept": sum(model.given)}


@groupless
def repeated(rank: int) -> Any:
    """5 samples of an evaluation."""
    model, trainer = _Logs(), trainer_of()
    trainer.validate(model, numbers(5), verbose=False)
    return model.given


class _Rows(L.LightningDataModule):
    def prepare_data(self) -> None:
        self.rows = 16

    def train_dataloader(self) -> DataLoader:
        return DataLoader(torch.ones(16, 1), batch_size=4)


@groupless
def prepared(rank: int) -> Any:
    """What prepare_data assigns; the steps and batches of 16 samples in batches of 4."""
    rows, model, trainer = _Rows(), Net(), trainer_of()
    trainer.fit(model, datamodule=rows)
    return {
        "rows": hasattr(rows, "rows"),
        "steps": trainer.global_step,
        "samples": len(model.given),
    }


@groupless
def of_rank_zero(rank: int) -> Any:
    """A function under @rank_zero_only, and what broadcast gives before fit."""

    @rank_zero_only
    def made() -> list[int]:
        return [1]

    trainer = trainer_of()
    return {
        "made": made(),
        "used": said(lambda: made()[0]).partition(":")[0],
        "broadcast": trainer.strategy.broadcast(rank),
        "group": torch.distributed.is_initialized(),
    }


class _Asks(Net):
    """Asks for its loader itself."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(torch.ones(16, 1), batch_size=4)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        self.asked = len(self.train_dataloader())
        self.estimated = int(self.trainer.estimated_stepping_batches)
        return super().configure_optimizers()


@groupless
def asked_length(rank: int) -> Any:
    model, trainer = _Asks(), trainer_of()
    trainer.fit(model)
    return [model.asked, model.estimated, trainer.global_step]


class _Exchange(L.Callback):
    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        trainer.fit_loop._combined_loader.flattened = [numbers(8)]


@groupless
def exchanged(rank: int) -> Any:
    """What the first epoch had, and the second of a loader that a callback has put there."""
    model = Net()
    trainer_of(callbacks=[_Exchange()], max_epochs=2, limit_train_batches=4).fit(model, numbers(8))
    return [sorted(model.given[:4]), model.given[4:]]


class _Sums(Net):
    def training_step(self, x: torch.Tensor, index: int) -> Any:
        return self.net(x).sum()

    def on_after_backward(self) -> None:
        self.seen = gradients(self.net)


@groupless
def summed(rank: int) -> Any:
    """A sum over a batch of 8 ones: 8 on one process."""
    model = _Sums()
    trainer_of().fit(model, DataLoader(torch.ones(8, 1), batch_size=4))
    return model.seen


@groupless
def without_configure_model(rank: int) -> Any:
    return said(lambda: trainer_of(strategy=shards()).fit(Net(), numbers(8)))


class _Sharded(Net):
    """Two rows of weights, one on each rank; the norm of the 1s of both is 1.4142."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(1, 2, bias=False)
        torch.nn.init.ones_(self.net.weight)

    def configure_model(self) -> None:
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def on_train_end(self) -> None:
        self.norm = self.net.weight.norm().item()
        self.kind = type(self.state_dict()["net.weight"]).__name__


@groupless
def sharded_weights(rank: int) -> Any:
    model = _Sharded()
    trainer_of(strategy=shards()).fit(model, numbers(8))
    return [round(model.norm, 4), model.kind]


@groupless
def average_of_shards(rank: int) -> Any:
    average = L.pytorch.callbacks.StochasticWeightAveraging(0.1, swa_epoch_start=1)
    trainer = trainer_of(strategy=shards(), callbacks=[average], max_epochs=3)
    return said(lambda: trainer.fit(_Sharded(), numbers(8)))
