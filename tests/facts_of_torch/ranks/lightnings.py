"""What Lightning does on two processes that torchrun has started."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_only
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from tests.facts_of_torch.pairs import groupless, while_others_wait
from tests.facts_of_torch.ranks.small import Sum, gradients, said

warnings.simplefilter("ignore")


def _numbers(count: int) -> DataLoader:
    return DataLoader(torch.arange(1.0, count + 1).reshape(count, 1), batch_size=1)


class _Net(L.LightningModule):
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


def _trainer(**options: Any) -> L.Trainer:
    strategy = DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=3))
    quiet = dict.fromkeys(
        ("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary"), False
    )
    given = {"accelerator": "cpu", "devices": 2, "strategy": strategy, "max_epochs": 1}
    return L.Trainer(**{**quiet, **given, **options})


class _Logs(_Net):
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
    model, trainer = _Logs(), _trainer()
    trainer.validate(model, _numbers(14), verbose=False)
    found = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return {**found, "kept": sum(model.given)}


@groupless
def repeated(rank: int) -> Any:
    """5 samples of an evaluation."""
    model, trainer = _Logs(), _trainer()
    trainer.validate(model, _numbers(5), verbose=False)
    return model.given


class _Rows(L.LightningDataModule):
    def prepare_data(self) -> None:
        self.rows = 16

    def train_dataloader(self) -> DataLoader:
        return DataLoader(torch.ones(16, 1), batch_size=4)


@groupless
def prepared(rank: int) -> Any:
    """What prepare_data assigns; the steps and batches of 16 samples in batches of 4."""
    rows, model, trainer = _Rows(), _Net(), _trainer()
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

    trainer = _trainer()
    return {
        "made": made(),
        "used": said(lambda: made()[0]).partition(":")[0],
        "broadcast": trainer.strategy.broadcast(rank),
        "group": torch.distributed.is_initialized(),
    }


class _Asks(_Net):
    """Asks for its loader itself."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(torch.ones(16, 1), batch_size=4)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        self.asked = len(self.train_dataloader())
        self.estimated = int(self.trainer.estimated_stepping_batches)
        return super().configure_optimizers()


@groupless
def asked_length(rank: int) -> Any:
    model, trainer = _Asks(), _trainer()
    trainer.fit(model)
    return [model.asked, model.estimated, trainer.global_step]


class _Exchange(L.Callback):
    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        trainer.fit_loop._combined_loader.flattened = [_numbers(8)]


@groupless
def exchanged(rank: int) -> Any:
    """What the first epoch had, and the second of a loader that a callback has put there."""
    model = _Net()
    _trainer(callbacks=[_Exchange()], max_epochs=2, limit_train_batches=4).fit(model, _numbers(8))
    return [sorted(model.given[:4]), model.given[4:]]


class _Stops(_Net):
    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_rank == 0 and len(self.given) == 1:
            self.trainer.should_stop = True

    def on_fit_end(self) -> None:
        if self.global_rank == 0:
            while_others_wait()


@groupless
def stopped_by_one(rank: int) -> Any:
    """Rank 0 sets should_stop behind its first batch."""
    model = _Stops()
    error = said(lambda: _trainer().fit(model, _numbers(8)))
    return [len(model.given), error]


class _Skips(_Net):
    def training_step(self, x: torch.Tensor, index: int) -> Any:
        return None if self.global_rank == 0 else super().training_step(x, index)


@groupless
def skipped(rank: int) -> Any:
    """training_step returns None on rank 0."""
    return said(lambda: _trainer().fit(_Skips(), _numbers(8)))


class _Sums(_Net):
    def training_step(self, x: torch.Tensor, index: int) -> Any:
        return self.net(x).sum()

    def on_after_backward(self) -> None:
        self.seen = gradients(self.net)


@groupless
def summed(rank: int) -> Any:
    """A sum over a batch of 8 ones: 8 on one process."""
    model = _Sums()
    _trainer().fit(model, DataLoader(torch.ones(8, 1), batch_size=4))
    return model.seen


@groupless
def without_configure_model(rank: int) -> Any:
    return said(lambda: _trainer(strategy=_shards()).fit(_Net(), _numbers(8)))


class _Saves(_Net):
    def on_train_end(self) -> None:
        if self.global_rank == 0:
            self.trainer.save_checkpoint("one.ckpt")
        else:
            while_others_wait()


@groupless
def saved_by_one(rank: int) -> Any:
    return said(lambda: _trainer().fit(_Saves(), _numbers(8)))


class _AsksFolder(_Net):
    def on_train_end(self) -> None:
        if self.global_rank == 0:
            assert self.trainer.log_dir is not None
        else:
            while_others_wait()


@groupless
def folder_of_one(rank: int) -> Any:
    return said(lambda: _trainer().fit(_AsksFolder(), _numbers(8)))


class _LogsOnOne(_Net):
    def validation_step(self, x: torch.Tensor, index: int) -> None:
        if self.global_rank == 0:
            self.log("own", x.mean(), sync_dist=True)

    def on_validation_end(self) -> None:
        if self.global_rank:
            while_others_wait()


@groupless
def synced_by_one(rank: int) -> Any:
    return said(lambda: _trainer().validate(_LogsOnOne(), _numbers(8), verbose=False))


def _of_fabric(rank: int, action: Any) -> Any:
    strategy = L.fabric.strategies.DDPStrategy(
        process_group_backend="gloo", timeout=timedelta(seconds=2)
    )
    fabric = L.Fabric(accelerator="cpu", devices=2, strategy=strategy)
    fabric.launch()
    fabric.barrier()
    if rank:
        while_others_wait()
        return ""
    return said(lambda: action(fabric))


@groupless
def fabric_setup(rank: int) -> Any:
    return _of_fabric(rank, lambda fabric: fabric.setup(Sum()))


@groupless
def fabric_barrier(rank: int) -> Any:
    return _of_fabric(rank, lambda fabric: fabric.barrier())


@groupless
def fabric_save(rank: int) -> Any:
    return _of_fabric(rank, lambda fabric: fabric.save("one.ckpt", {"step": 1}))


@groupless
def fabric_load(rank: int) -> Any:
    torch.save({"step": 1}, f"{rank}.ckpt")
    return _of_fabric(rank, lambda fabric: fabric.load("0.ckpt", {"step": 0}))


@groupless
def fabric_all_gather(rank: int) -> Any:
    return _of_fabric(rank, lambda fabric: fabric.all_gather(torch.ones(1)))


class _Sharded(_Net):
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


def _shards() -> ModelParallelStrategy:
    return ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)


@groupless
def sharded_weights(rank: int) -> Any:
    model = _Sharded()
    _trainer(strategy=_shards()).fit(model, _numbers(8))
    return [round(model.norm, 4), model.kind]


@groupless
def average_of_shards(rank: int) -> Any:
    average = L.pytorch.callbacks.StochasticWeightAveraging(0.1, swa_epoch_start=1)
    trainer = _trainer(strategy=_shards(), callbacks=[average], max_epochs=3)
    return said(lambda: trainer.fit(_Sharded(), _numbers(8)))
