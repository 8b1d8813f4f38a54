"""`verify` on Lightning projects: one device against two processes, the script as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddpify import cli
from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.lightning.project import PROJECT
from tests.lightning.runs import FIXTURE, copied

pytest.importorskip("lightning")
pytestmark = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(300)]

Change = tuple[str, str]
TRAINING = "self.x.sum(1)), BATCH"
VALIDATION = "self.x.prod(1)), BATCH"
SHARE = " // self.trainer.world_size"
STEP = '        loss = self._step(batch, "train")\n'
VALIDATED = '        loss = self._step(batch, "val")\n'
EPOCH = '            print("epoch", self.current_epoch)\n'
SEED = "    L.seed_everything(0)\n"
WRITTEN = 'with open(OUT / "metrics.json", "w") as file:\n'
LOGGED = "loss, on_step=False, on_epoch=True"
DEVICES = 'accelerator="cpu", devices=1,'
REPORTED = '        self.log("train/loss"'
RANK = "int(__import__('os').environ.get('RANK', 0))"


def changed(text: str, *changes: Change) -> str:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


ORIGINAL = changed(
    PROJECT,
    (f"{TRAINING})", f"{TRAINING}{SHARE}, shuffle=True)"),
    (f"{VALIDATION})", f"{VALIDATION}{SHARE})"),
    # the largest of the batches' means is another number where batches are smaller
    ('        self.log("val/worst", loss, reduce_fx="max")\n', ""),
    # of a step, as one rank has it
    (
        "in trainer.callback_metrics.items()}",
        'in trainer.callback_metrics.items() if name != "train/step"}',
    ),
)


class Report:
    """What `verify --json` says: names of checks by how they ended, and codes of causes."""

    def __init__(self, text: str) -> None:
        content: dict[str, Any] = json.loads(text)
        self.checks = {check["name"]: check for check in content["checks"]}
        self.causes = [cause["rule"] for cause in content["causes"]]
        self.evidence = " ".join(cause["evidence"] for cause in content["causes"])
        self.setup = " ".join(content["setup"])

    def ended(self, verdict: str) -> set[str]:
        return {name for name, check in self.checks.items() if check["verdict"] == verdict}

    def said(self, name: str) -> str:
        return " ".join((self.checks[name]["measured"], *self.checks[name]["details"]))


def put(text: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "train.py"
    script.write_text(text)
    return script


def verified(
    code: int,
    script: Path,
    capsys: pytest.CaptureFixture[str],
    *flags: str,
    arguments: tuple[str, ...] = ("16",),
) -> Report:
    found = cli.main(["verify", str(script), "--json=-", *flags, "--", *arguments])
    said = capsys.readouterr()
    report = Report(said.out)
    assert found == code, (report.ended("fail"), report.evidence, said.err)
    return report


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What ``migrate`` makes of it in one file: Lightning deals its evaluation."""
    script = put(ORIGINAL, tmp_path_factory.mktemp("source"))
    found = migrate((script,), Settings(ignore=("DDP966",)))
    assert not found.refusals
    return found.changes[0].after.decode()


def test_it_is_migrated_and_green(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = verified(cli.CLEAN, put(ORIGINAL, tmp_path / "project"), capsys)
    assert report.ended("skipped") == {"overfit"}
    assert report.checks["steps"]["measured"] == "8 in one process, 8 / 8 on the ranks"
    assert "devices=2, num_nodes=1, strategy='ddp'" in report.setup


def test_shuffled_batches_that_are_divided_come_in_one_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = changed(ORIGINAL, (f"{TRAINING}{SHARE}", TRAINING), (f"{VALIDATION}{SHARE}", VALIDATION))
    report = verified(cli.CLEAN, put(text, tmp_path / "project"), capsys)
    assert report.ended("skipped") == {"overfit"}


def test_it_is_compared_with_itself_where_nothing_is_to_migrate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = put(ORIGINAL, tmp_path / "project")
    assert cli.main(["migrate", str(script), "--inplace"]) == cli.CLEAN
    assert cli.main(["verify", str(script), "--nproc=4", "--steps=3", "--", "16"]) == cli.CLEAN
    said = capsys.readouterr().out
    assert "the working tree on one device in 1 process against 4 ranks" in said


CALLBACKS = (
    "[Notes(), L.pytorch.callbacks.ModelCheckpoint(monitor='val/step'),"
    " L.pytorch.callbacks.EarlyStopping('val/step', verbose=True),"
    " L.pytorch.callbacks.LearningRateMonitor()]"
)
NET = "nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1)"
KINDS: dict[str, tuple[tuple[Change, ...], tuple[str, ...]]] = {
    "pytorch_lightning": (
        (("import lightning as L", "import pytorch_lightning as L"),),
        (),
    ),
    "float64": (((DEVICES, f'{DEVICES} precision="64-true",'),), ("--tolerance=1e-10",)),
    "mixed": (((DEVICES, f'{DEVICES} precision="16-mixed",'),), ()),
    "float32": (
        (
            ("4, 1, dtype=torch.float64", "4, 1"),
            ("64, 4, dtype=torch.float64", "64, 4"),
        ),
        ("--dtype=float32",),
    ),
    "accumulated-and-clipped": (
        ((DEVICES, f"{DEVICES} accumulate_grad_batches=2, gradient_clip_val=0.1,"),),
        (),
    ),
    "strategy-in-the-script": (
        ((DEVICES, 'devices=4, strategy="ddp_find_unused_parameters_true",'),),
        (),
    ),
    "loggers-bars-and-checkpoints": (
        (
            ("logger=False", "logger=L.pytorch.loggers.CSVLogger(Path.cwd())"),
            ("enable_checkpointing=False, enable_progress_bar=False, ", ""),
            ("[Notes()]", CALLBACKS),
        ),
        (),
    ),
    "workers": (
        (("shuffle=True", "shuffle=True, num_workers=2, persistent_workers=True"),),
        (),
    ),
    "forward-of-its-own": (
        (
            ("mse_loss(self.layer(x)", "mse_loss(self(x)"),
            (
                "    def _step",
                "    def forward(self, x):\n        return self.layer(x)\n\n    def _step",
            ),
        ),
        (),
    ),
    "noise": (
        (
            ("nn.Linear(4, 1, dtype=torch.float64)", f"nn.Sequential({NET})"),
            (DEVICES, f"{DEVICES} sync_batchnorm=True,"),
        ),
        ("--neutralise=all",),
    ),
    # drawn from the stream that Lightning seeds anew on several processes, and so on one here
    "weighted": (
        (
            (
                f"{TRAINING}{SHARE}, shuffle=True)",
                f"{TRAINING}, sampler=torch.utils.data.WeightedRandomSampler(torch.ones(64), 64))",
            ),
            ("torch.manual_seed(1)", "seed = torch.Generator().manual_seed(1)"),
            ("64, 4, dtype=torch.float64", "64, 4, dtype=torch.float64, generator=seed"),
        ),
        (),
    ),
    # each rank looks at two batches of its own before training: more samples than one process does
    "sanity": (
        (
            (f"{VALIDATION}{SHARE}", VALIDATION),
            ("num_sanity_val_steps=0,", ""),
            ("def on_validation_epoch_end(self, trainer", "def on_train_epoch_end(self, trainer"),
        ),
        (),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_it_is_green(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, flags = KINDS[name]
    script = put(changed(ORIGINAL, *changes), tmp_path / "project")
    report = verified(cli.CLEAN, script, capsys, *flags)
    assert report.ended("skipped") == {"overfit"}


# what is changed in the migrated project, the checks that fail, what one says, and the cause
FAULTS: dict[str, tuple[tuple[Change, ...], set[str], str, str]] = {
    "batch-not-divided": (
        ((f"{TRAINING}{SHARE}", TRAINING),),
        {"steps", "samples"},
        "SGD: 8 in one process, 4 on rank 0",
        "DDP203",
    ),
    "metric-not-synced": (
        ((f"{LOGGED}, sync_dist=True", LOGGED),),
        {"metrics"},
        "train/loss",
        "DDP951",
    ),
    "file-of-both-ranks": (
        ((f"            {WRITTEN}                json", f"        {WRITTEN}            json"),),
        {"files-once"},
        "out/metrics.json is changed by rank 0 and by rank 1",
        "DDP502",
    ),
    "console-of-both-ranks": (
        ((EPOCH, f"            pass\n{EPOCH[4:]}"),),
        {"console-once"},
        "first: 'epoch 0'",
        "DDP501",
    ),
    "same-samples": (
        (("num_sanity_val_steps=0,", "num_sanity_val_steps=0, use_distributed_sampler=False,"),),
        {"samples", "steps"},
        "each rank goes through the whole data set",
        "DDP202",
    ),
    "seed-of-each-rank": (
        ((SEED, f"    L.seed_everything({RANK})\n"),),
        {"samples"},
        "several ranks train on the same samples",
        "DDP202",
    ),
    "data-of-each-rank": (
        (('self.x = torch.load("rows.pt")', f'self.x = torch.load("rows.pt") + {RANK}'),),
        {"contents"},
        "has another content on rank 1",
        "DDP111",
    ),
    "parameters-of-one-rank": (
        ((STEP, f"{STEP}        self.layer.bias.data += 1e-3 * {RANK}\n"),),
        {"ranks-identical", "trajectory"},
        "1 of 2 parameters differ (layer.bias)",
        "DDP301",
    ),
    "barrier-of-one-rank": (
        ((EPOCH, f"{EPOCH}            self.trainer.strategy.barrier()\n"),),
        {"completed", "collectives"},
        "rank 0 waits in barrier at train.py:",
        "DDP806",
    ),
    "log-of-one-rank": (
        (
            (
                VALIDATED,
                f"{VALIDATED}        if self.trainer.is_global_zero:\n"
                '            self.log("val/extra", loss, sync_dist=True)\n',
            ),
        ),
        {"completed", "collectives"},
        "hangs after 4 optimizer steps",
        "DDP806",
    ),
    "not-shuffled-by-one-process": (
        ((", shuffle=True", ""),),
        {"samples"},
        "one process takes the samples as they lie, the ranks' sampler shuffles them",
        "",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_red(
    name: str, right: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that waits for ever is found by the clock: that of the process group stands at 30
    minutes."""
    changes, failed, reason, rule = FAULTS[name]
    ours = changed(ORIGINAL, *changes) if not rule else ORIGINAL
    put(ours, tmp_path / "original")
    script = put(changed(right, *changes), tmp_path / "project")
    flags = (f"--baseline={tmp_path / 'original'}", "--timeout=20")
    report = verified(cli.TO_DO, script, capsys, *flags)
    assert report.ended("fail") >= failed
    assert reason in " ".join(map(report.said, failed))
    assert report.causes[:1] == [rule] * bool(rule)


BY_HAND = (
    ("        self.layer = ", "        self.automatic_optimization = False\n        self.layer = "),
    (
        f'        self.log("train/loss", {LOGGED}, sync_dist=True)\n        return loss\n',
        f'        self.log("train/loss", {LOGGED}, sync_dist=True)\n'
        "        first, second = self.optimizers()\n"
        "        first.zero_grad()\n"
        "        self.manual_backward(loss)\n"
        "        first.step()\n"
        "        second.zero_grad()\n"
        "        self.manual_backward(self.layer(batch[0]).pow(2).mean())\n"
        "        second.step()\n",
    ),
    (
        "torch.optim.SGD(self.parameters(), 0.1)",
        "torch.optim.SGD([self.layer.weight], 0.1), torch.optim.Adam([self.layer.bias], 0.1)",
    ),
)
FABRIC = """
import sys

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = L.Fabric(devices=1, accelerator="cpu")
    fabric.launch()
    fabric.seed_everything(0)
    x = torch.randn(64, 4)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer = fabric.setup(model, optimizer)
    data = TensorDataset(x, x.sum(1))
    loader = DataLoader(data, int(sys.argv[1]) // fabric.world_size, shuffle=True)
    loader = fabric.setup_dataloaders(loader)
    for epoch in range(2):
        total = 0.0
        for inputs, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs)[:, 0], target)
            fabric.backward(loss)
            optimizer.step()
            total += loss.detach()
        total = fabric.all_reduce(total / len(loader))
        fabric.print("epoch", epoch, round(total.item(), 4))
    fabric.save("model.pt", {"model": model})


if __name__ == "__main__":
    main()
"""


class TestAsItStands:
    """--distributed-only: what ``migrate`` refuses is compared with itself, too."""

    def test_two_optimizers_stepped_by_hand(
        self, right: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        script = put(changed(right, *BY_HAND), tmp_path / "project")
        report = verified(cli.CLEAN, script, capsys, "--distributed-only")
        assert report.checks["steps"]["measured"] == "16 in one process, 16 / 16 on the ranks"

    def test_fabric(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        script = put(FABRIC, tmp_path / "project")
        report = verified(cli.CLEAN, script, capsys, "--distributed-only")
        assert report.ended("skipped") == {"overfit", "evaluation"}

    def test_fabric_without_its_share(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = changed(FABRIC, ("total = fabric.all_reduce(total / len(loader))", "total /= 4"))
        report = verified(cli.TO_DO, put(text, tmp_path / "project"), capsys, "--distributed-only")
        assert report.ended("fail") == {"metrics"}

    def test_the_fixture_is_green_once_migrated(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        root = copied(FIXTURE, tmp_path / "project")
        arguments = ("--precision", "64-true", "--norm", "group", "--no-augment", "--epochs", "2")
        named = ("--name", "run", "--test")
        report = verified(cli.CLEAN, root / "train.py", capsys, arguments=(*arguments, *named))
        assert report.ended("skipped") == {"overfit"}
        assert report.checks["steps"]["measured"] == "46 in one process, 46 / 46 on the ranks"

    def test_the_fixture_is_red(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """It is stopped before a rank decides alone that it is enough."""
        root = copied(FIXTURE, tmp_path / "project")
        arguments = ("--norm", "group", "--no-augment", "--epochs", "1", "--name", "run")
        flags = ("--distributed-only", "--timeout=60")
        report = verified(cli.TO_DO, root / "train.py", capsys, *flags, arguments=arguments)
        assert {"metrics", "files-once", "console-once"} <= report.ended("fail")


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (
            changed(ORIGINAL, (DEVICES, 'strategy="fsdp",')),
            (),
            "its Trainer has strategy='fsdp', and verify compares one device with ddp",
        ),
        (
            changed(
                ORIGINAL,
                (DEVICES, "devices=1,"),
                ("optim.SGD", "optim.Adam"),
                ('torch.save(net.state_dict(), OUT / "net.pt")', "pass"),
            ),
            ("--strategy=fsdp",),
            "has ddp in the place of shards",
        ),
        (
            changed(
                ORIGINAL,
                ("L.Trainer(\n", "Mine(\n"),
                ("def main", "class Mine(L.Trainer):\n    pass\n\n\ndef main"),
            ),
            (),
            "the training loop is in Lightning",
        ),
        (
            "from lightning.pytorch.cli import LightningCLI\n\nLightningCLI()\n",
            (),
            "--distributed-only",
        ),
        (
            changed(ORIGINAL, (REPORTED, f"        if loss > 9:\n            return\n{REPORTED}")),
            (),
            "a step that one process leaves out",
        ),
    ],
    ids=["fsdp", "shards", "subclass", "cli", "refused"],
)  # fmt: skip
def test_what_cannot_be_compared_is_said(
    text: str,
    flags: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = put(text, tmp_path / "project")
    assert cli.main(["verify", str(script), *flags, "--", "16"]) == cli.FAILED
    assert said in capsys.readouterr().err
