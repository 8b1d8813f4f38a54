"""A small Lightning project for one device, and what `migrate` makes of changes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddpify.outcome import Outcome
from ddpify.pipeline import migrate
from ddpify.settings import Settings

PROJECT = """import json
import sys
from pathlib import Path

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = int(sys.argv[1])
OUT = Path("out")


class Rows(L.LightningDataModule):
    def prepare_data(self):
        torch.manual_seed(1)
        torch.save(torch.randn(64, 4, dtype=torch.float64), "rows.pt")
        print("rows are written")

    def setup(self, stage):
        self.x = torch.load("rows.pt")
        print(f"{len(self.x)} rows")

    def train_dataloader(self):
        return DataLoader(TensorDataset(self.x, self.x.sum(1)), BATCH)

    def val_dataloader(self):
        return DataLoader(TensorDataset(self.x, self.x.prod(1)), BATCH)


class Notes(L.Callback):
    def __init__(self):
        OUT.mkdir(exist_ok=True)
        self.rows = []

    def _note(self, text):
        with open(OUT / "notes.txt", "a") as file:
            file.write(text + "\\\\n")
        print(text)

    def on_train_start(self, trainer, pl_module):
        self._note(f"training for {trainer.max_epochs} epochs")

    def on_validation_epoch_end(self, trainer, pl_module):
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        self.rows.append(metrics)
        print("validated", sorted(metrics))
        with open(OUT / "metrics.json", "w") as file:
            json.dump(self.rows, file)

    def on_train_end(self, trainer, pl_module):
        trainer.save_checkpoint(OUT / "end.ckpt")
        self._note(f"{len(self.rows)} validations")


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1, dtype=torch.float64)

    def _step(self, batch, stage):
        x, y = batch
        loss = nn.functional.mse_loss(self.layer(x)[:, 0], y)
        self.log(f"{stage}/step", loss)
        return loss

    def training_step(self, batch, batch_idx):
        loss = self._step(batch, "train")
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        loss = self._step(batch, "val")
        self.log("val/rows", float(len(batch[0])), reduce_fx="sum")
        self.log("val/worst", loss, reduce_fx="max")

    def on_train_epoch_end(self):
        print("epoch", self.current_epoch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def main():
    L.seed_everything(0)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, num_sanity_val_steps=0,
        enable_checkpointing=False, enable_progress_bar=False, callbacks=[Notes()],
    )
    net = Net()
    trainer.fit(net, datamodule=Rows())
    torch.save(net.state_dict(), OUT / "net.pt")
    print("done")


if __name__ == "__main__":
    main()
""".replace("\\\\", "\\")


def put(folder: Path, *changes: tuple[str, str], text: str = PROJECT) -> Path:
    """The script of a project that was changed in some places."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text)
    return folder / "train.py"


def outcome(
    folder: Path, *changes: tuple[str, str], text: str = PROJECT, **settings: Any
) -> Outcome:
    """What `migrate` makes of that."""
    return migrate((put(folder, *changes, text=text),), Settings(**settings))


def written(found: Outcome) -> str:
    """The script as it was migrated."""
    assert not found.refusals, found.refusals
    return next(one.after.decode() for one in found.changes if one.path == "train.py")


def refused(found: Outcome) -> str:
    """Why it was not."""
    assert not found.changes
    return " ".join(one.message for one in found.refusals)
