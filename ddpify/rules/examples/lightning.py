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
LIGHTNING = Example((("main.py", _PROGRAM),))
