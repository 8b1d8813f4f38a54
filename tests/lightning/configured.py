"""Small projects whose Trainer a configuration makes: one of LightningCLI, one of hydra."""

from __future__ import annotations

MODULES = {
    "net.py": """import lightning as L
import torch
from torch import nn


class Net(L.LightningModule):
    def __init__(self, layer: nn.Module, rate: float = 0.1):
        super().__init__()
        self.layer, self.rate = layer.double(), rate

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.layer(x)[:, 0], y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val/loss", nn.functional.mse_loss(self.layer(x)[:, 0], y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.rate)
""",
    "layers.py": """from torch import nn


class Small(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.inner = nn.Linear(width, 1)

    def forward(self, x):
        return self.inner(x)
""",
    "rows.py": """import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Rows(L.LightningDataModule):
    def __init__(self, batch_size: int = 8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        made = torch.Generator().manual_seed(1)
        self.x = torch.randn(64, 4, generator=made, dtype=torch.float64)

    def train_dataloader(self):
        return DataLoader(TensorDataset(self.x, self.x.sum(1)), self.batch_size)

    def val_dataloader(self):
        return DataLoader(TensorDataset(self.x[:20], self.x[:20].prod(1)), self.batch_size)
""",
    "notes.py": """import json

import lightning as L


class Notes(L.Callback):
    def __init__(self, path: str = "notes.jsonl"):
        self.path = path

    def on_validation_epoch_end(self, trainer, pl_module):
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        with open(self.path, "a") as file:
            file.write(json.dumps(metrics) + "\\n")
""",
}
COMMANDLINE = {
    **MODULES,
    "main.py": """import torch
from lightning.pytorch.cli import LightningCLI

from net import Net
from rows import Rows


class Program(LightningCLI):
    def add_arguments_to_parser(self, parser):
        parser.add_argument("--out", default="net.pt")

    def after_fit(self):
        torch.save(self.model.state_dict(), self.config.fit.out)


if __name__ == "__main__":
    Program(
        Net,
        Rows,
        seed_everything_default=1,
        save_config_callback=None,
        trainer_defaults={"logger": False, "enable_progress_bar": False},
    )
""",
    "config.yaml": """# one GPU is enough
seed_everything: 7
trainer:
  accelerator: cpu
  devices: 1  # of this machine
  max_epochs: 2
  num_sanity_val_steps: 0
  enable_checkpointing: false
  callbacks:
    - class_path: notes.Notes
      init_args: {path: notes.jsonl}
model:
  layer:
    class_path: layers.Small
    init_args:
      width: 4
data:
  batch_size: 8
""",
    "run.sh": "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0 python main.py fit --config config.yaml"
    " --trainer.devices 1\n",
}
HYDRA = {
    **MODULES,
    "train.py": """import hydra
import lightning as L
import torch


def callbacks(cfg):
    return [hydra.utils.instantiate(each) for each in cfg.values()]


@hydra.main(version_base=None, config_path="configs", config_name="train")
def main(cfg):
    L.seed_everything(cfg.seed)
    rows = hydra.utils.instantiate(cfg.data)
    net = hydra.utils.instantiate(cfg["model"])
    trainer = hydra.utils.instantiate(cfg.trainer, callbacks=callbacks(cfg.callbacks))
    trainer.fit(net, datamodule=rows)
    torch.save(net.state_dict(), "net.pt")


if __name__ == "__main__":
    main()
""",
    "configs/train.yaml": """defaults:
  - model: net
  - data: rows
  - trainer: default
  - _self_

seed: 7
callbacks:
  notes:
    _target_: notes.Notes
    path: notes.jsonl
""",
    "configs/trainer/default.yaml": """_target_: lightning.Trainer
accelerator: cpu
devices: 1  # of this machine
max_epochs: 2
num_sanity_val_steps: 0
enable_checkpointing: false
enable_progress_bar: false
logger: false
""",
    "configs/trainer/gpu.yaml": """defaults: [default]

accelerator: gpu  # all of them
devices: 1
""",
    "configs/debug.yaml": """# @package _global_
trainer:
  accelerator: cpu
  devices: 1  # debuggers do not like more
""",
    "configs/model/net.yaml": """_target_: net.Net
layer:
  _target_: layers.Small
  width: 4
""",
    "configs/data/rows.yaml": "_target_: rows.Rows\nbatch_size: 8\n",
    "run.sh": "#!/bin/bash\npython train.py trainer=gpu trainer.devices=1\n",
}
