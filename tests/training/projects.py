"""The two fixture projects: how to copy, migrate, start and read each of them.

Everything a test must know of one project stands here, so that each proof is written once and
holds for both.
"""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ddpify import cli

_FIXTURES = Path(__file__).parents[2] / "fixtures"


@dataclass(frozen=True)
class Project:
    """``plain`` leaves batch norm out, ``resume`` goes on from ``checkpoint``.

    ``epochs`` maps a first and a last epoch to what --epochs must say when resuming; ``clock``
    matches what differs between two runs of the same program.
    """

    folder: str
    entry: str
    launcher: str
    arguments: tuple[str, ...]
    plain: tuple[str, ...]
    batch: str
    resume: tuple[str, ...]
    epochs_are_further: bool
    checkpoint: str
    weights: str
    steps_per_epoch: int
    log: str
    accuracy: str
    clock: str

    def argv(self, *extra: str, epochs: int = 3) -> list[str]:
        return [self.entry, *self.arguments, f"--epochs={epochs}", *extra]

    def resuming(self, *extra: str, done: int, epochs: int = 3) -> list[str]:
        """Go on to ``epochs`` in all, after ``done`` of them."""
        asked = epochs - done if self.epochs_are_further else epochs
        return self.argv(*self.resume, *extra, epochs=asked)

    def masked(self, text: str) -> str:
        return re.sub(self.clock, "<time>", text, flags=re.MULTILINE)

    def accuracies(self, tree: Path) -> list[str]:
        """The evaluation accuracy of each epoch, as the project's log has it."""
        path = tree / "out" / self.log
        with path.open(newline="") as log:
            rows = csv.DictReader(log, delimiter="\t" if path.suffix == ".txt" else ",")
            return [row[self.accuracy] for row in rows]

    def load(self, tree: Path) -> dict[str, Any]:
        loaded: dict[str, Any] = torch.load(tree / "out" / self.checkpoint)
        return loaded


CLASSIFICATION = Project(
    folder="classification",
    entry="main_classification.py",
    launcher="run_classification.sh",
    arguments=("--output-dir=out", "--width=8", "--lr-step=2"),
    plain=("--norm=none",),
    batch="--batch-size",
    resume=("--resume=out/last.pt",),
    epochs_are_further=False,
    checkpoint="last.pt",
    weights="model",
    steps_per_epoch=23,
    log="log.csv",
    accuracy="val_acc",
    clock=r"\b\d+\.\ds\b|(?<=,)\d+\.\d\d$",
)
DATAPARALLEL = Project(
    folder="classification_dataparallel",
    entry="train_digits.py",
    launcher="run.sh",
    arguments=("--outdir=out", "--manualSeed=1", "--schedule=2"),
    plain=("--arch=mlp",),
    batch="--train-batch",
    resume=("--resume",),
    epochs_are_further=True,
    checkpoint="checkpoint/ckpt.pth",
    weights="net",
    steps_per_epoch=12,
    log="log.txt",
    accuracy="Test Acc",
    clock=r"Step: *\d+ms|Tot: *\d+\.\ds",
)


@dataclass(frozen=True)
class Workshop:
    """Hands out scratch copies; a run has its own, since runs leave files."""

    folder: Path

    def original(self, project: Project, name: str) -> Path:
        return self._copy(_FIXTURES / project.folder, f"{project.folder}-{name}")

    def migrated(self, project: Project, name: str) -> Path:
        done = self.sources(project)
        if not done.exists():
            migrate(project, self.original(project, "as-migrated"))
        return self._copy(done, f"{project.folder}-{name}")

    def observed(self, project: Project, name: str) -> Path:
        """Where what the harness saw goes: outside of the trees."""
        return self.folder / "observed" / f"{project.folder}-{name}"

    def sources(self, project: Project) -> Path:
        """A tree that nothing is run in: what a migrated tree has of its own."""
        return self.folder / f"{project.folder}-as-migrated"

    def _copy(self, source: Path, name: str) -> Path:
        ignored = shutil.ignore_patterns("__pycache__")
        return Path(shutil.copytree(source, self.folder / name, ignore=ignored))


def migrate(project: Project, tree: Path) -> None:
    code = cli.main(["migrate", str(tree / project.entry), "--inplace"])
    assert code == cli.CLEAN, f"migrate ends with exit code {code}"


def edit(path: Path, *replacements: tuple[str, str]) -> None:
    """Replace each text, which must be there."""
    text = path.read_text()
    for old, new in replacements:
        assert old in text, f"{path.name} has no {old!r}"
        text = text.replace(old, new)
    path.write_text(text)
