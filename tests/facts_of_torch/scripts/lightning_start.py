"""Started by python: Lightning starts the other process. What each has, in a file of its own."""

import json
import os
import time
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

FIRST_LINE = time.time()


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, x, index):
        return self.layer(x).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    kept = ModelCheckpoint()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=CSVLogger("logs", version=None),
        callbacks=[kept],
        enable_progress_bar=False,
    )
    before = trainer.strategy.broadcast(FIRST_LINE)
    trainer.fit(Net(), DataLoader(torch.ones(4, 1)))
    seen = {"first line": FIRST_LINE, "broadcast": before, "folder": kept.dirpath}
    Path(f"seen{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(seen))
