"""A small transformer in Lightning, in float64, that is to be sharded: tied and frozen weights."""

TRANSFORMER = """import sys
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
DEVICES, EPOCHS = int(sys.argv[1]), int(sys.argv[2])
OUT = Path("out")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.mix(y, y, y, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(x)))


class Words(nn.Module):
    def __init__(self, words, width, depth):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.places = nn.Embedding(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight
        self.places.requires_grad_(False)

    def forward(self, x):
        x = self.embed(x) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Net(L.LightningModule):
    def __init__(self, width=16, depth=3):
        super().__init__()
        self.save_hyperparameters()
        self.net = Words(12, width, depth)
        self.loss = nn.CrossEntropyLoss()

    def _loss(self, batch):
        x, y = batch
        return self.loss(self.net(x).flatten(0, 1), y.flatten())

    def training_step(self, batch, batch_idx):
        return self._loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self._loss(batch))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 0.01)


class Texts(L.LightningDataModule):
    def setup(self, stage):
        generator = torch.Generator().manual_seed(1)
        x = torch.randint(12, (32, 8), generator=generator)
        self.rows = TensorDataset(x, (x + x.roll(1, 1)) % 12)

    def train_dataloader(self):
        return DataLoader(self.rows, 32)

    def val_dataloader(self):
        return DataLoader(self.rows, 16)


def main():
    L.seed_everything(0)
    best = ModelCheckpoint(OUT, "best", monitor="val/loss", save_last=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=DEVICES, max_epochs=EPOCHS, logger=False, callbacks=[best],
        gradient_clip_val=0.5, enable_progress_bar=False,
    )
    resumed = OUT / "last.ckpt" if len(sys.argv) > 3 else None
    net = Net()
    trainer.fit(net, datamodule=Texts(), ckpt_path=resumed)
    trainer.save_checkpoint(OUT / "end.ckpt")
    trainer.validate(net, datamodule=Texts(), ckpt_path="best")


if __name__ == "__main__":
    main()
"""
