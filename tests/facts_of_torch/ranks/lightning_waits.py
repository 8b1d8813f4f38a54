"""What one process asks of Lightning and Fabric by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import lightning as L
import torch

from tests.facts_of_torch.pairs import groupless, while_others_wait
from tests.facts_of_torch.ranks.lightning_nets import Net, numbers, trainer_of
from tests.facts_of_torch.ranks.small import Sum, said


class _Stops(Net):
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
    error = said(lambda: trainer_of().fit(model, numbers(8)))
    return [len(model.given), error]


class _Skips(Net):
    def training_step(self, x: torch.Tensor, index: int) -> Any:
        return None if self.global_rank == 0 else super().training_step(x, index)


@groupless
def skipped(rank: int) -> Any:
    """training_step returns None on rank 0."""
    return said(lambda: trainer_of().fit(_Skips(), numbers(8)))


class _Saves(Net):
    def on_train_end(self) -> None:
        if self.global_rank == 0:
            self.trainer.save_checkpoint("one.ckpt")
        else:
            while_others_wait()


@groupless
def saved_by_one(rank: int) -> Any:
    return said(lambda: trainer_of().fit(_Saves(), numbers(8)))


class _AsksFolder(Net):
    def on_train_end(self) -> None:
        if self.global_rank == 0:
            assert self.trainer.log_dir is not None
        else:
            while_others_wait()


@groupless
def folder_of_one(rank: int) -> Any:
    return said(lambda: trainer_of().fit(_AsksFolder(), numbers(8)))


class _LogsOnOne(Net):
    def validation_step(self, x: torch.Tensor, index: int) -> None:
        if self.global_rank == 0:
            self.log("own", x.mean(), sync_dist=True)

    def on_validation_end(self) -> None:
        if self.global_rank:
            while_others_wait()


@groupless
def synced_by_one(rank: int) -> Any:
    return said(lambda: trainer_of().validate(_LogsOnOne(), numbers(8), verbose=False))


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
