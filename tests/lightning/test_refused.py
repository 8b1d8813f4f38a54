"""What `migrate` let through on Lightning, without a word and wrong: refused now, or named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lightning.test_loaders import EPOCH, FIT, MADE, STEP, TRAIN, TRAINED
from tests.lightning.test_migrate import outcome, refused, written

Change = tuple[str, str]
PRINT = '        print("epoch", self.current_epoch)\n'
BATCH, DEVICES, LAYER = "BATCH = int(sys.argv[1])\n", 'accelerator="cpu", devices=1', "Linear(4, 1"
MODULES = "import lightning as L\n"


def kept(adds: str, reads: str, begins: str = "self.kept = 0", step: str = STEP) -> list[Change]:
    """A field that a step adds to, and that the end of the epoch reads."""
    stage, after = ("validation", EPOCH) if step == STEP else ("train", "")
    hook = f"    def on_{stage}_epoch_end(self):\n        {reads}\n        {begins}\n"
    whole = f"{EPOCH}{PRINT}"
    return [
        (step, f"{step}        {adds}\n"),
        (MADE, f"{MADE}        {begins}\n"),
        (whole, hook + (f"\n{after}{PRINT}" if after else "")),
    ]


def trained(*lines: str) -> list[Change]:
    return [(TRAINED, "        x, y = batch\n" + "".join(f"        {line}\n" for line in lines))]


OUTPUT = "self.layer(x).expand(-1, 3), y.long()"
OTHER = "        import other\n"
GOES_OVER = "{}        for x, y in {}:\n            self.layer(x)\n"
PREDICTED = "    rows = DataLoader(torch.zeros(37, 4, dtype=torch.float64), 5)\n"
WRITES = "    def predict_step(self, batch, batch_idx):\n        return self.layer(batch)\n\n"
MEAN = "a mean over a count or weights that each process has for itself"
CASES: dict[str, tuple[list[Change], str]] = {
    # what hooks keep
    "entries per sample are no sums": (
        kept("self.kept += [1.0]", "self.log('n', len(self.kept))", "self.kept = []"),
        "DDP968",
    ),
    "entries of a dictionary": (
        kept("self.kept['a'].append(loss)", "print(self.kept['a'])", "self.kept = {'a': []}"),
        "DDP968",
    ),
    "a sum that is synced by a sum": (
        kept("self.kept += loss", "self.log('n', self.kept, sync_dist=True, reduce_fx='sum')"),
        "DDP968",
    ),
    "by the batches of a process": (
        kept("self.kept += loss", "print(self.kept / len(self.trainer.val_dataloaders))"),
        "DDP957",
    ),
    "by their number": (
        kept("self.kept += loss", "n = self.trainer.num_val_batches[0]"),
        "DDP957",
    ),
    # what is trained on
    "a loader beside something else": (
        [(TRAIN, f"{OTHER}        return [DataLoader(self.x, BATCH), other.make(self.x)]\n")],
        "what is trained on is not followed",
    ),
    "a loader or something else": (
        [
            (
                TRAIN,
                f"{OTHER}        if len(sys.argv) > 5:\n            return other.make(self.x)\n"
                "        return DataLoader(self.x, BATCH)\n",
            )
        ],
        "what is trained on is not followed",
    ),
    "a hook trains on it, too": (
        [(EPOCH, GOES_OVER.format(EPOCH, "self.trainer.datamodule.train_dataloader()"))],
        "the program goes over it, too",
    ),
    "a hook evaluates by it": (
        [(EPOCH, GOES_OVER.format(EPOCH, "self.trainer.val_dataloaders"))],
        "DDP966",
    ),
    "a size by an unknown number of devices": (
        [
            (BATCH, f"import configs\n\n{BATCH}SIZE = BATCH // configs.read().gpus\n"),
            (DEVICES, 'accelerator="cpu", devices=configs.read().gpus'),
            (TRAIN, TRAIN.replace("BATCH)", "SIZE)")),
        ],
        "the program asks how many processes there are",
    ),
    "a loader that is made anew": (
        [("max_epochs=2", "max_epochs=2, overfit_batches=4")],
        "Lightning makes another loader for this",
    ),
    # the loss
    "labels that are left out": (
        trained(f"loss = nn.functional.cross_entropy({OUTPUT}, ignore_index=0)"),
        MEAN,
    ),
    "weights of classes": (
        trained(f"loss = nn.functional.cross_entropy({OUTPUT}, weight=torch.ones(3).double())"),
        MEAN,
    ),
    "a mask": (
        trained(
            "mask = (y > 0).double()",
            "loss = (self.layer(x)[:, 0].pow(2) * mask).sum() / mask.sum()",
        ),
        MEAN,
    ),
    # what comes after
    "predictions": (
        [
            (FIT, f"{FIT}{PREDICTED}    torch.save(trainer.predict(net, rows), OUT / 'p.pt')\n"),
            ("    def configure_optimizers", f"{WRITES}    def configure_optimizers"),
        ],
        "each rank predicts its part",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused(name: str, tmp_path: Path) -> None:
    changes, said = CASES[name]
    assert said in refused(outcome(tmp_path, *changes))


@pytest.mark.parametrize(
    "adds",
    [
        "if loss < 1:\n            self.kept += 1",
        "self.kept += batch[0].shape[1]",
        "self.kept += len(self.trainer.optimizers)",
    ],
)
def test_what_a_training_step_counts_otherwise_is_named(adds: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, *kept(adds, "print(self.kept)", step=TRAINED))
    assert "reduce_sum" not in written(found)
    assert any(one.rule == "DDP968" and not one.fix for one in found.findings)


def test_losses_that_are_sums_are_added_up(tmp_path: Path) -> None:
    summed = trained(
        "loss = nn.functional.mse_loss(self.layer(x)[:, 0], y, reduction='sum')",
        "self.kept.append(loss.item())",
    )
    rest = kept("", "print(sum(self.kept))", "self.kept = []", TRAINED)[1:]
    assert "self.kept = reduce_sum(self.kept)" in written(outcome(tmp_path, *summed, *rest))


def test_a_sum_in_other_words_is_one(tmp_path: Path) -> None:
    changes = kept("self.kept = self.kept + len(batch[0])", "self.log('n', float(self.kept))")
    assert "self.kept = reduce_sum(self.kept)" in written(outcome(tmp_path, *changes))


def test_a_word_in_a_hook_has_no_processes_agree(tmp_path: Path) -> None:
    stop = (
        "        wide = self.layer.weight.broadcast_to(2, 1, 4)  # all_reduce\n"
        "        self.trainer.should_stop = bool(wide.sum() > 1)\n"
    )
    assert "reduce_boolean_decision" in written(outcome(tmp_path, (EPOCH, f"{EPOCH}{stop}")))


def test_a_checkpoint_by_position_is_rank_zeros(tmp_path: Path) -> None:
    fit = "    trainer.fit(net, None, None, Rows(), max(OUT.glob('*')))\n"
    assert "Rows(), from_rank_zero(max(OUT.glob('*'))))" in written(outcome(tmp_path, (FIT, fit)))


def test_what_a_base_prepares_is_given_to_the_others(tmp_path: Path) -> None:
    base = (
        "class Rows(L.LightningDataModule):\n    def prepare_data(self):",
        "class Base(L.LightningDataModule):\n    def prepare_data(self):\n"
        "        self.scale = 2.0\n        self.more()\n\n\n"
        "class Rows(Base):\n    def __init__(self):\n"
        "        super().__init__()\n        self.scale = 1.0\n\n    def more(self):",
    )
    load = '        self.x = torch.load("rows.pt")'
    text = written(outcome(tmp_path, base, (load, f"{load} * self.scale")))
    assert "self.scale = self.trainer.strategy.broadcast(self.scale)" in text


def test_a_number_of_something_else_stays(tmp_path: Path) -> None:
    number = (BATCH, f"{BATCH}NUM = 1\n")
    given = (DEVICES, "devices=NUM")
    alone = written(outcome(tmp_path / "alone", number, given))
    assert "NUM = int(environ.get(" in alone
    found = outcome(tmp_path / "both", number, given, (LAYER, "Linear(4, NUM"))
    assert "\nNUM = 1\n" in written(found)
    assert any(one.rule == "DDP960" and not one.fix for one in found.findings)


def test_a_batch_that_the_devices_divide_is_left(tmp_path: Path) -> None:
    options = (
        BATCH,
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('batch', type=int)\n"
        "parser.add_argument('--devices', type=int, default=1)\n"
        "args = parser.parse_args()\nBATCH = args.batch // args.devices\n",
    )
    text = written(outcome(tmp_path, options, (DEVICES, "devices=args.devices")))
    assert "share_training" not in text
    assert "default=int(environ.get(" in " ".join(text.split()).replace("default= ", "default=")


def test_a_mask_in_a_method_is_named(tmp_path: Path) -> None:
    """What is not read by value is not proven to be of the loss."""
    off = (
        "    def off(self, x, y):\n        mask = (y > 0).double()\n"
        "        return (self.layer(x)[:, 0] * mask).sum() / mask.sum()\n\n"
    )
    found = outcome(tmp_path, *trained("loss = self.off(x, y)"), (EPOCH, f"{off}{EPOCH}"))
    assert any(one.rule == "DDP979" for one in found.findings)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((DEVICES, "**dict(sys.argv[2:])"), "how many devices the Trainer is given"),
        (("max_epochs=2", "max_epochs=2, limit_val_batches=7"), "evaluate N times as many"),
    ],
)
def test_what_is_not_followed_of_a_trainer_is_said(
    given: Change, said: str, tmp_path: Path
) -> None:
    found = outcome(tmp_path, given)
    assert written(found)
    assert any(said in one.message for one in found.findings)
