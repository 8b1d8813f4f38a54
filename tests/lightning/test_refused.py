"""What `migrate` let through on Lightning, without a word and wrong: refused now, or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lightning.project import outcome, refused, written
from tests.lightning.test_loaders import EPOCH, FIT, MADE, STEP, TRAIN, TRAINED

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


OFF = "    def off(self, x, y):\n        mask = (y > 0).double()\n"
MASKED = f"{OFF}        return (self.layer(x)[:, 0] * mask).sum() / mask.sum()\n\n"
BY_NAME = MASKED.replace("return", "off =").replace("\n\n", "\n        return off\n\n")


@pytest.mark.parametrize("method", [MASKED, BY_NAME])
def test_a_mask_in_a_method_that_gives_the_loss_is_refused(method: str, tmp_path: Path) -> None:
    given = outcome(tmp_path, *trained("loss = self.off(x, y)"), (EPOCH, f"{method}{EPOCH}"))
    assert MEAN in refused(given)


@pytest.mark.parametrize(
    ("method", "line"),
    [
        (MASKED, "loss = self.layer(x).mean()\n        self.log('off', self.off(x, y))"),
        (MASKED, "loss = self.off(x, y) + self.layer(x).mean()"),
        (BY_NAME.replace("return off", "return self.layer(x).mean()"), "loss = self.off(x, y)"),
    ],
)
def test_one_that_may_not_be_of_the_loss_is_named(method: str, line: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, *trained(line), (EPOCH, f"{method}{EPOCH}"))
    assert written(found)
    assert any(one.rule == "DDP979" for one in found.findings)


def test_devices_that_are_not_followed_are_said(tmp_path: Path) -> None:
    found = outcome(tmp_path, (DEVICES, "**dict(sys.argv[2:])"))
    assert written(found)
    said = "how many devices the Trainer is given"
    assert any(said in one.message for one in found.findings)


MANY, ROUNDED, GROWN = "evaluate N times as many", "of its own batches down", "batches of a process"


@pytest.mark.parametrize(
    ("given", "whole", "kept"),
    [
        ("limit_val_batches=7", MANY, MANY),
        ("limit_test_batches=BATCH", MANY, MANY),
        ("limit_val_batches=0.5", ROUNDED, ROUNDED),
        ("limit_val_batches=1.0, limit_test_batches=0", "", ""),
        ("limit_train_batches=7", "", GROWN),
        ("max_steps=9", "", GROWN),
        ("val_check_interval=3", "", GROWN),
        ("val_check_interval=0.5, max_steps=-1, limit_train_batches=0.5", "", ""),
        ("accumulate_grad_batches=2, log_every_n_steps=5", "", ""),
    ],
)
def test_what_counts_batches_is_named_where_it_counts_others(
    given: str, whole: str, kept: str, tmp_path: Path
) -> None:
    options = ("max_epochs=2", f"max_epochs=2, {given}")
    for size, said in (("global", whole), ("per-rank", kept)):
        found = outcome(tmp_path / size, options, batch_size=size)
        assert written(found)
        told = [f for f in found.findings if f.rule in ("DDP965", "DDP966") and not f.fix]
        assert [said in one.message for one in told] == [True] * bool(said)
        assert all(str(one.site) == "train.py:87" for one in told)


def test_a_number_of_batches_in_a_config_is_named(tmp_path: Path) -> None:
    tmp_path.joinpath("more.yaml").write_text("trainer:\n  limit_val_batches: 7\n  max_steps: -1\n")
    given = (DEVICES, "**yaml.safe_load(open('more.yaml'))['trainer']")
    found = outcome(tmp_path, ("import sys\n", "import sys\n\nimport yaml\n"), given)
    assert written(found)
    [named] = [one for one in found.findings if one.rule == "DDP966" and not one.fix]
    assert (MANY in named.message, str(named.site)) == (True, "more.yaml:2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lr_scale": "linear", "batch_size": "per-rank"}, "--lr-scale is not written"),
        ({"find_unused": "on"}, "--find-unused is not written"),
        ({"static_graph": True}, "--static-graph is not written"),
        ({"bucket_cap": 3}, "--bucket-cap is not written"),
    ],
)
def test_an_option_that_is_not_written_is_refused(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert said in refused(outcome(tmp_path, **options))


@pytest.mark.parametrize("options", [{"sync_bn": "off"}, {"ignore": ("DDP961",)}])
def test_what_is_switched_off_is_not_written(options: dict[str, Any], tmp_path: Path) -> None:
    norm = (LAYER, "BatchNorm1d(4); nn.Linear(4, 1"), ('accelerator="cpu", ', "")
    assert "sync_batchnorm" in written(outcome(tmp_path / "on", *norm))
    assert "sync_batchnorm" not in written(outcome(tmp_path / "off", *norm, **options))


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (
            "global",
            "learning rate (`0.1`, train.py:81): as it is, because the global batch (`BATCH`,"
            " train.py:25) is as it was; a larger global batch by a factor k: times k",
        ),
        (
            "per-rank",
            "learning rate (`0.1`, train.py:81): the global batch is N times as large; times N",
        ),
    ],
)
def test_advice_on_the_learning_rate_is_given(size: str, said: str, tmp_path: Path) -> None:
    found = outcome(tmp_path, batch_size=size)
    [note] = [one for one in found.notes if one.message.startswith("learning rate")]
    assert note.message.startswith(said)
    assert str(note.site) == "train.py:86"
