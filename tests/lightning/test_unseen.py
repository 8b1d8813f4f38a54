"""Modules that a configuration hands to the Trainer: no script is seen to, and they are judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from tests.projects import put

MODULE = """import lightning as L
import torch
from torch import nn


class Net(L.LightningModule):
    def __init__(self, net, path="net"):
        super().__init__()
        self.net, self.path = net, path

    def setup(self, stage):
        self.name = f"{self.path}-NAME.pt"

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.net(x), y)SYNC)

    def on_train_end(self):
        torch.save(self.net.state_dict(), self.name)
"""
CALLBACK = """import lightning as L


class Table(L.Callback):
    def __init__(self, path):
        self.path = path

    def on_validation_end(self, trainer, module):
        rank = trainer.global_rank
        with open(self.path, "a") as file:
            file.write(f"{trainer.current_epoch} {rank}")
"""
SCRIPT = """import hydra


@hydra.main(version_base=None, config_path="configs")
def main(config):
    trainer = hydra.utils.instantiate(config.trainer)
    trainer.fit(hydra.utils.instantiate(config.net), hydra.utils.instantiate(config.rows))


main()
"""


def found(folder: Path, assumed: bool = True, **files: str) -> list[str]:
    """What is found in a project, as ``file:line: code``."""
    put({f"{name}.py": text for name, text in files.items()}, folder)
    paths = sorted(folder.glob("*.py"))
    read = lint(folder, paths, assume_distributed=assumed)
    return [f"{one.site.path}:{one.site.span.line}: {one.rule}" for one in read.findings]


def net(name: str, sync: str = "") -> str:
    return MODULE.replace("NAME", name).replace("SYNC", sync)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (net("best"), ["net.py:16: DDP951", "net.py:19: DDP601"]),
        (net("best", ", sync_dist=True"), ["net.py:16: DDP967", "net.py:19: DDP601"]),
        (net("{self.global_rank}"), ["net.py:16: DDP951"]),
        (net("{self.global_rank}", ", sync_dist=True"), ["net.py:16: DDP967"]),
    ],
)
def test_the_hooks_of_a_module_are_read_in_their_order(
    text: str, wanted: list[str], tmp_path: Path
) -> None:
    assert found(tmp_path, net=text, main=SCRIPT) == wanted


def test_of_a_trainer_that_is_not_seen_no_devices_are_known(tmp_path: Path) -> None:
    assert "net.py:16: DDP951" not in found(tmp_path, assumed=False, net=net("best"), main=SCRIPT)


def test_callbacks_are_read_as_those_of_a_trainer(tmp_path: Path) -> None:
    assert found(tmp_path, table=CALLBACK, main=SCRIPT) == ["table.py:10: DDP502"]
