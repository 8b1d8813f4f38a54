"""What is found in the tests of a project, which pytest runs in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.rules.base import Severity

_FABRIC = """
import torch
from lightning.fabric import Fabric
from torch import nn


def test_setup():
    fabric = Fabric({})
    model = nn.Linear(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = fabric.setup_optimizers(optimizer)
    assert optimizer is not None
"""
_STATES = """
import torch
from accelerate import Accelerator
from torch import nn


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x * self.a


def test_weight():
    accelerator = Accelerator()
    model = accelerator.prepare(Line())
    assert model.a.item() == 0
"""


def _severities(folder: Path, name: str, text: str) -> set[Severity]:
    file = folder / name
    file.write_text(text)
    return {one.severity for one in lint(folder, [file]).findings}


@pytest.mark.parametrize("text", [_FABRIC.format(""), _STATES], ids=["fabric", "accelerate"])
def test_a_unit_test_runs_in_one_process(text: str, tmp_path: Path) -> None:
    assert not _severities(tmp_path, "test_them.py", text)


def test_one_that_asks_for_several_does_not(tmp_path: Path) -> None:
    assert Severity.ERROR in _severities(tmp_path, "test_them.py", _FABRIC.format("devices=2"))


def test_nor_does_the_script_in_its_file(tmp_path: Path) -> None:
    text = f'{_STATES}\n\nif __name__ == "__main__":\n    test_weight()\n'
    assert Severity.ERROR in _severities(tmp_path, "test_them.py", text)


@pytest.mark.parametrize(("name", "written"), [("test_them.py", False), ("them.py", True)])
def test_a_file_is_written_once_there(name: str, written: bool, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(_STATES + '    torch.distributed.barrier()\n    torch.save(model, "a.pt")\n')
    assert written is any(one.rule == "DDP601" for one in lint(tmp_path, [file]).findings)
