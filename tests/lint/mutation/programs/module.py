"""Lightning: a module and a data module; what is written by hand is written by one rank."""

import json

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@rank_zero_only
def write_summary(path, values):
    with open(path, "w") as out:
        json.dump(values, out)


class Points(L.LightningDataModule):
    def __init__(self, path="points.pt", batch_size=16):
        super().__init__()
        self.path = path
        self.batch_size = batch_size

    def prepare_data(self):
        generator = torch.Generator().manual_seed(1)
        torch.save(torch.randn(256, 8, generator=generator), self.path)

    def setup(self, stage):
        x = torch.load(self.path, map_location="cpu")
        y = x.sum(1, keepdim=True)
        self.train_set = TensorDataset(x[:192], y[:192])
        self.valid_set = TensorDataset(x[192:], y[192:])

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.valid_set, self.batch_size)


class Regression(L.LightningModule):
    def __init__(self, lr=1e-2):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        gap = self.net(x) - y
        self.log("val_mse", gap.square().mean(), sync_dist=True)
        self.log("val_mae", gap.abs().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main():
    L.seed_everything(0)
    trainer = L.Trainer(accelerator="auto", devices=2, strategy="ddp", max_epochs=2)
    trainer.fit(Regression(), datamodule=Points())
    trainer.save_checkpoint("regression.ckpt")
    mse = trainer.callback_metrics["val_mse"].item()
    write_summary("summary.json", {"mse": mse})
    if trainer.is_global_zero:
        print(f"validation {mse:.4f}")


if __name__ == "__main__":
    main()
