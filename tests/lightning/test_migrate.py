"""`migrate` on Lightning projects: what is written, and that one device and two do the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.lightning.project import PROJECT, outcome, refused, written
from tests.lightning.runs import FIXTURE, Run, read_checkpoint, read_json, train
from tests.projects import write

running = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(240)]


def test_numbers_of_evaluations_and_epochs_are_reduced(tmp_path: Path) -> None:
    """Numbers of training steps are not: each would have all ranks wait."""
    text = written(outcome(tmp_path))
    assert "            sync_dist=not self.training,\n" in text
    assert "batch_size=self.trainer.world_size * extract_batch_size(batch)" in text
    assert "loss, on_step=False, on_epoch=True, sync_dist=True)" in text
    assert 'float(len(batch[0])), reduce_fx="sum", sync_dist=True)' in text


@pytest.mark.parametrize(
    "change",
    [
        ("trainer = L.Trainer(", "trainer = L.Trainer.from_argparse_args(\n        None,"),
        (
            "trainer = L.Trainer(",
            "from lightning.pytorch.trainer import Trainer as T\n\n    trainer = T(",
        ),
    ],
)
def test_a_trainer_is_known_however_it_is_made(change: tuple[str, str], tmp_path: Path) -> None:
    assert "sync_dist=not self.training,\n" in written(outcome(tmp_path, change))


def test_what_meets_stays_on_all_ranks(tmp_path: Path) -> None:
    text = written(outcome(tmp_path))
    assert '        trainer.save_checkpoint(OUT / "end.ckpt")\n' in text
    assert "        self.rows.append(metrics)\n" in text
    assert "        OUT.mkdir(exist_ok=True)\n" in text
    assert '        print("rows are written")\n' in text  # one process prepares data


@pytest.mark.parametrize(
    "shown",
    [
        "counted()",  # by what it calls, it changes a list
        "torch.rand(3)",
        "self.layer(torch.zeros(1, 4, dtype=torch.float64))",
        "self.all_gather(torch.zeros(1))",
        "next(iter(self.trainer.datamodule.train_dataloader()))",
        "SEEN.pop()",
        "self.trainer.save_checkpoint('x.ckpt')",
        "(n := 3)",
        "self.metric.compute()",
    ],
)
def test_what_others_would_miss_is_not_on_one_rank(shown: str, tmp_path: Path) -> None:
    functions = (
        "SEEN = []\n\n\ndef noted():\n    SEEN.append(1)\n    return 1\n\n\n"
        "def counted():\n    return noted() + 1\n\n\nclass Rows("
    )
    line = f"print({shown})"
    found = outcome(
        tmp_path, ('print("epoch", self.current_epoch)', line), ("class Rows(", functions)
    )
    assert f"        if self.trainer.is_global_zero:\n            {line}" not in written(found)
    assert any(one.rule == "DDP501" and not one.fix for one in found.findings)


def test_the_old_package_keeps_its_name(tmp_path: Path) -> None:
    found = outcome(tmp_path, ("import lightning as L", "import pytorch_lightning as L"))
    text = written(found)
    assert "from pytorch_lightning.utilities import rank_zero_only" in text
    assert "if trainer.is_global_zero:" in text


def test_a_migrated_project_is_left_alone(tmp_path: Path) -> None:
    found = outcome(tmp_path)
    assert "share_training(DataLoader(" in written(found)
    write(found.changes, tmp_path)
    again = migrate((tmp_path / "train.py",), Settings())
    assert not again.refusals
    assert not again.changes
    assert not again.wanting


def test_the_batch_is_said_of_each_trainer(tmp_path: Path) -> None:
    said = [note.message for note in outcome(tmp_path).notes]
    assert any("N processes divide the batches of one" in one for one in said)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (  # other ranks have no such attribute
            ('torch.save(torch.randn(64, 4, dtype=torch.float64), "rows.pt")', "self.n = 64"),
            "DDP953",
        ),
        (  # all ranks go on with what it returns
            ('            file.write(text + "\\n")', '            self.n = file.write(text)'),
            "DDP502",
        ),
        (  # rank 0 has half of the rows
            ('        self.log("val/rows",', '        (OUT / "y.txt").write_text(str(batch))\n'
             '        self.log("val/rows",'),
            "DDP955",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_proven_is_refused(
    change: tuple[str, str], rule: str, tmp_path: Path
) -> None:
    changes = [change]
    if rule == "DDP953":
        changes += [('self.x = torch.load("rows.pt")', "self.x = torch.zeros(self.n, 4)")]
    said = refused(outcome(tmp_path, *changes))
    assert f"{rule} " in said
    assert "train.py:" in said


TRAINED = '        self.log("train/loss", loss, on_step=False, on_epoch=True)\n'
LOADER = "        return DataLoader(TensorDataset(self.x, self.x.sum(1)), BATCH)\n"
HAZARDS = {
    "a step that one process leaves out": (
        TRAINED,
        f"        if loss > 9:\n            return\n{TRAINED}",
    ),
}


@pytest.mark.parametrize("said", HAZARDS)
def test_what_is_not_followed_on_several_devices_is_refused(said: str, tmp_path: Path) -> None:
    assert said in refused(outcome(tmp_path, HAZARDS[said]))


def test_a_loader_that_a_hook_exchanges_is_refused(tmp_path: Path) -> None:
    hook = "    def on_train_start(self, trainer, pl_module):\n"
    line = "        trainer.fit_loop._combined_loader.flattened = [{}]\n"
    found = outcome(tmp_path, (hook, hook + line.format("trainer.datamodule.val_dataloader()")))
    assert "DDP977 a loader in the Trainer's own loop is not dealt" in refused(found)


def test_a_loader_that_is_asked_for_again_is_none(tmp_path: Path) -> None:
    hook = "    def on_train_start(self, trainer, pl_module):\n"
    again = "        trainer.fit_loop.epoch_loop.val_loop._combined_loader = None\n"
    assert again in written(outcome(tmp_path, (hook, hook + again)))


def test_what_rank_0_prepares_is_given_to_the_others(tmp_path: Path) -> None:
    """Only what all have from the start, before anything is set up."""
    save = '        torch.save(torch.randn(64, 4, dtype=torch.float64), "rows.pt")\n'
    kept = (save, save + "        self.scale, self.names = 2.0, ['a']\n")
    made = (
        "    def prepare_data(self):\n",
        "    def __init__(self):\n        super().__init__()\n",
    )
    given = "        self.scale = 1.0\n        self.names = []\n\n    def prepare_data(self):\n"
    load = '        self.x = torch.load("rows.pt")\n'
    used = (load, load.replace(")\n", ") * self.scale\n"))
    text = written(outcome(tmp_path, kept, (made[0], made[1] + given), used))
    assert (
        "        if self.trainer is not None:\n"
        "            self.scale, self.names = self.trainer.strategy.broadcast(\n"
        "                (self.scale, self.names)\n            )\n" + used[1]
    ) in text
    assert "DDP953 " in refused(outcome(tmp_path, kept, used))


def test_nothing_in_the_fixture_needs_a_person() -> None:
    found = migrate((FIXTURE / "train.py",), Settings())
    assert not found.refusals
    assert len(found.changes) == 12


def test_a_file_that_all_read_is_waited_for(tmp_path: Path) -> None:
    """In the methods of a data module and of a module the Trainer is known."""
    made = '        torch.save(torch.zeros(3), "cache.pt")\n        torch.load("cache.pt")\n'
    setup = "    def setup(self, stage):\n"
    text = written(outcome(tmp_path, (setup, setup + made)))
    assert "            torch.save" in text
    assert '        self.trainer.strategy.barrier()\n        torch.load("cache.pt")' in text


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """One process before and after, two processes after and before.

    A step sees all rows: the faulty one's loader is shuffled by Lightning, asked to or not.
    """
    pytest.importorskip("lightning")
    folder = tmp_path_factory.mktemp("migrated")
    changes = outcome(folder / "source").changes
    found = {}
    for name, edits, batch, processes in (
        ("before", (), "64", 1),
        ("after", changes, "64", 1),
        ("two", changes, "64", 2),
        ("faulty", (), "32", 2),
    ):
        root = folder / name
        root.mkdir()
        (root / "train.py").write_text(PROJECT)
        write(edits, root)
        found[name] = train(root, folder / f"{name}_seen", batch, processes=processes)
    return found


def _files(run: Run) -> list[str]:
    paths = (p for p in run.files("**/*") if p.is_file() and p.suffix != ".py")
    return sorted(p.relative_to(run.root).as_posix() for p in paths)


def _weights(run: Run) -> list[float]:
    state = read_checkpoint(run.root / "out" / "net.pt")
    return [number for tensor in state.values() for number in tensor.flatten().tolist()]


class TestRuns:
    """Real processes; float64."""

    pytestmark = running

    def test_one_device_is_as_before(self, runs: dict[str, Run]) -> None:
        before, after = runs["before"], runs["after"]
        assert before.finished, before.output
        assert after.finished, after.output
        assert _files(before) == _files(after)
        assert _weights(before) == _weights(after)
        for name in ("notes.txt", "metrics.json"):
            assert (before.root / "out" / name).read_text() == (
                after.root / "out" / name
            ).read_text()
        assert before.ranks[0].console == after.ranks[0].console

    def test_two_processes_have_the_numbers_of_one(self, runs: dict[str, Run]) -> None:
        one, two = runs["after"], runs["two"]
        assert two.finished, two.output
        assert _weights(two) == pytest.approx(_weights(one), abs=1e-10)
        mine, theirs = (read_json(r.root / "out" / "metrics.json") for r in (one, two))
        assert len(mine) == len(theirs) == 2
        for single, several in zip(mine, theirs, strict=True):
            for name in ("val/step", "val/rows"):  # the largest of batches is of other batches
                assert several[name] == pytest.approx(single[name], abs=1e-6)

    def test_two_processes_write_and_print_once(self, runs: dict[str, Run]) -> None:
        one, two = runs["after"], runs["two"]
        assert _files(two) == _files(one)
        notes = (two.root / "out" / "notes.txt").read_text()
        assert notes == (one.root / "out" / "notes.txt").read_text()
        for line in ("64 rows", "epoch 0", "epoch 1", "done", "rows are written"):
            assert two.output.splitlines().count(line) == 1, line

    def test_without_it_two_processes_do_not(self, runs: dict[str, Run]) -> None:
        faulty = runs["faulty"]  # both may have come in one line
        assert faulty.output.count("epoch 0") == 2
        assert faulty.output.count("64 rows") == 2
        notes = (faulty.root / "out" / "notes.txt").read_text().splitlines()
        assert len(notes) > 2


@pytest.mark.parametrize(("version", "once"), [("", True), (", version=3", False)])
def test_a_folder_of_the_version_that_each_process_counts_is_made_once(
    version: str, once: bool, tmp_path: Path
) -> None:
    """The second process counts the folder of the first (seen with PyTorch-VAE)."""
    fit = "    trainer.fit(net, datamodule=Rows())\n"
    logger = f'    logs = L.pytorch.loggers.CSVLogger("logs"{version})\n'
    made = '    Path(f"{logs.log_dir}/pictures").mkdir(parents=True, exist_ok=True)\n'
    text = written(outcome(tmp_path, (fit, f"{logger}{made}{fit}")))
    assert (f"    if rank_zero_only.rank == 0:\n    {made}" in text) is once


def test_a_number_of_steps_is_said_to_be_that_of_rank_zero(tmp_path: Path) -> None:
    line = '        self.log("train/loss", loss, on_step=False, on_epoch=True)\n'
    found = outcome(tmp_path, (line, f'{line}        self.log("train/now", loss)\n'))
    assert not found.refusals
    (left,) = (one for one in found.findings if one.rule == "DDP951" and not one.fix)
    assert left.message == "of each step this shows rank 0's part of the batch"
