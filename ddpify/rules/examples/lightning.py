"""A small correct program with Lightning, into which the examples of its rules put their lines."""

from __future__ import annotations

from ddpify.rules.base import Example

_PROGRAM = """import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@rank_zero_only
def name_of(folder):
    return f"{folder}/net.pt"


class Rows(L.LightningDataModule):
    def __init__(self, path="rows.pt"):
        super().__init__()
        self.path = path

    def prepare_data(self):
        torch.save(torch.randn(256, 8), self.path)

    def setup(self, stage):
        self.x = torch.load(self.path, map_location="cpu")

    def train_dataloader(self):
        return DataLoader(TensorDataset(self.x, self.x.abs()), 16, shuffle=True)

    def val_dataloader(self):
        return DataLoader(TensorDataset(self.x, self.x.abs()), 16)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        loss_of = nn.functional.mse_loss
        self.log("val_loss", loss_of(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def main():
    L.seed_everything(0)
    trainer = L.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=3)
    trainer.fit(Net(), datamodule=Rows())


if __name__ == "__main__":
    main()
"""
_IMPORT = "from lightning.pytorch.utilities.data import extract_batch_size\n"
_HELPERS = "from ddp_metrics import share_evaluation, share_training\n"
LIGHTNING = Example((("main.py", _PROGRAM),))
# For one device, and dealt to as many as it is given.
_TRAIN = "DataLoader(TensorDataset(self.x, self.x.abs()), 16, shuffle=True)"
_VAL = "DataLoader(TensorDataset(self.x, self.x.abs()), 16)"
_WEIGHT = "self.trainer.world_size * extract_batch_size(batch)"
_NAMED = '@rank_zero_only\ndef name_of(folder):\n    return f"{folder}/net.pt"\n\n\n'
_RANK_ZERO = "from lightning.pytorch.utilities import rank_zero_only\n"
_FED = (
    _PROGRAM.replace(_TRAIN, f"share_training({_TRAIN})")
    .replace(_VAL, f"share_evaluation({_VAL})")
    .replace('devices=2, strategy="ddp", ', "devices=1, ")
    .replace("sync_dist=True)", f"sync_dist=True, batch_size={_WEIGHT})")
    .replace(_NAMED, "")
    .replace(_RANK_ZERO, _IMPORT)
    .replace("DataLoader, TensorDataset\n", "DataLoader, TensorDataset\n\n" + _HELPERS)
)
FED = Example((("main.py", _FED),), assumed=True)
# Shared out by fully_shard.
_STRATEGY = "from lightning.pytorch.strategies import ModelParallelStrategy\n"
_STEP = "    def training_step(self, batch, batch_idx):\n"
SHARDING = """    def configure_model(self):
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

"""
_SHARDED = (
    _PROGRAM.replace(_NAMED, "")
    .replace(_RANK_ZERO, f"{_STRATEGY}from torch.distributed.fsdp import fully_shard\n")
    .replace('"ddp"', "ModelParallelStrategy(2, 1)")
    .replace(_STEP, SHARDING + _STEP)
)
SHARDED = Example((("main.py", _SHARDED),))
