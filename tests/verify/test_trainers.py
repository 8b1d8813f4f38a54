"""What Lightning's Trainers are given from outside, and what verify makes of how they count.

The real ones: tests/lightning/test_verify.py. Here a package of their name says what it is given.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddpify.settings import Settings
from ddpify.verify.checks.passes import passes
from ddpify.verify.options import Options
from ddpify.verify.pairing import CannotCompare, Pair, pair
from ddpify.verify.recording import (
    Backward,
    EventRecord,
    Fetch,
    LoaderRecord,
    RunRecord,
    ShuffleRecord,
    StepTaken,
)
from ddpify.verify.verdict import Verdict
from tests.lightning.project import PROJECT
from tests.verify.factories import checked, collective, evidence, ranks, reference
from tests.verify.observing import run_ranks, run_single
from tests.verify.test_baseline import commit, git

TRAINER = """
import logging

log = logging.getLogger("lightning.pytorch")


class Trainer:
    def __init__(self, *, strategy="auto", **others):
        name = strategy if isinstance(strategy, str) else type(strategy).__name__
        log.warning("made of %s", name)
        log.info("a tip")
        print(name, sorted(others.items()))


class DDPStrategy:
    pass


class DeepSpeedStrategy(DDPStrategy):
    pass


class SingleDeviceStrategy:
    pass
"""
SCRIPT = """
import logging
import sys

logging.basicConfig(level=logging.INFO, format="%(message)s")
from lightning.pytorch.trainer.trainer import *

for text in sys.argv[1:]:
    Trainer(strategy=eval(text) if "(" in text else text, devices=7, max_epochs=3)
logging.info("a word of the script")
Trainer(accelerator="gpu")
print("done")
"""
PLACED = "[('accelerator', 'cpu'), ('devices', %d), ('max_epochs', 3), ('num_nodes', 1)]"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    folder = tmp_path / "lightning" / "pytorch" / "trainer"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    (folder / "trainer.py").write_text(TRAINER)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_one_process_has_one_device_and_no_strategy(project: Path) -> None:
    asked = "ddp fsdp DDPStrategy()"
    run = run_single(project, f"train.py {asked}", project.parent / "out")
    assert run.stdout.splitlines()[:3] == ["auto " + PLACED % 1] * 3
    assert run.stdout.splitlines()[3:] == [
        "auto [('accelerator', 'cpu'), ('devices', 1), ('num_nodes', 1)]",
        "done",
    ]
    assert "a word of the script" in run.stderr
    assert "made of auto" in run.stderr
    assert "a tip" not in run.stderr
    assert run.trainer == "devices=1, num_nodes=1, strategy='auto', accelerator='cpu'"


@pytest.mark.training
def test_several_processes_have_the_scripts_own_ddp(project: Path) -> None:
    asked = "auto ddp_spawn ddp_notebook_find_unused_parameters_true DDPStrategy()"
    runs = run_ranks(project, f"train.py {asked} SingleDeviceStrategy()", project.parent / "out")
    for run in runs:
        assert [line.split()[0] for line in run.stdout.splitlines()] == [
            *("ddp", "ddp", "ddp_find_unused_parameters_true", "DDPStrategy", "ddp", "ddp"),
            "done",
        ]
        assert PLACED % 2 in run.stdout


@pytest.mark.training
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("fsdp", "its Trainer has strategy='fsdp'"),
        ("DeepSpeedStrategy()", "its Trainer has strategy=DeepSpeedStrategy"),
    ],
)
def test_what_shards_is_not_run_on_several(asked: str, why: str, project: Path) -> None:
    runs = run_ranks(project, f"train.py ddp {asked}", project.parent / "out")
    assert [run.unsupported for run in runs] == [why, why]
    assert "done" not in runs[0].stdout


def _fetch(*samples: int, loader: int = 0, last: bool = False, grad: bool = True) -> Fetch:
    return Fetch(0, 0.0, loader, 0, samples, ("",) * len(samples), grad, last=last)


TRAINED: tuple[EventRecord, ...] = (Backward(0, 0.0, 1.0), StepTaken(0, 0.0, 0))


@pytest.mark.parametrize(("trainer", "ended"), [("devices=1", True), ("", False)])
def test_a_trainers_pass_ends_with_the_last_batch(trainer: str, ended: bool) -> None:
    """It does not ask for another; who iterates by hand does, or left early."""
    events = (_fetch(1, 2), *TRAINED, _fetch(3, last=True), *TRAINED)
    (found,) = passes(RunRecord(events=events, trainer=trainer))
    assert (found.ended, found.training) == (ended, True)


@pytest.mark.parametrize(
    ("shares", "last", "verdict"),
    [
        (((1, 3, 5, 7), (2, 4, 6, 8)), False, Verdict.PASS),
        (((1, 2), (3, 4)), False, Verdict.PASS),
        (((1, 2, 3, 5), (1, 4, 6, 7)), False, Verdict.FAIL),  # one on both
        (((1, 2, 5, 6), (3, 7, 8, 9)), False, Verdict.FAIL),  # without 4
        (((1, 3, 5, 7), (2, 4, 6, 8)), True, Verdict.FAIL),  # no look, but all there is
    ],
)
def test_a_look_before_training_may_be_as_long_on_each_rank(
    shares: tuple[tuple[int, ...], ...], last: bool, verdict: Verdict
) -> None:
    def looking(run: RunRecord, *samples: int) -> RunRecord:
        look = _fetch(*samples, loader=1, last=last, grad=False)
        return replace(run, events=(look, *run.events), trainer="devices=2")

    runs = tuple(looking(run, *share) for run, share in zip(ranks(), shares, strict=True))
    found = evidence(runs, looking(reference(), 1, 2, 3, 4))
    assert checked(found, "evaluation").verdict is verdict


@pytest.mark.parametrize(("size", "verdict"), [(0, Verdict.FAIL), (1, Verdict.PASS)])
def test_other_orders_are_right_in_smaller_groups_only(size: int, verdict: Verdict) -> None:
    """Lightning makes a group of all ranks where one of them prepares data."""
    calls = [collective("new_group"), collective("all_reduce"), collective("broadcast")]
    calls = [replace(call, ranks=size) if call.name != "new_group" else call for call in calls]
    orders = (calls, [calls[0], calls[2], calls[1]])
    runs = tuple(
        replace(run, events=(*run.events, *own)) for run, own in zip(ranks(), orders, strict=True)
    )
    assert checked(evidence(runs), "collectives").verdict is verdict


@pytest.mark.parametrize(("one", "said"), [("SequentialSampler", True), ("RandomSampler", False)])
def test_an_order_that_only_ranks_shuffle_is_said(one: str, said: bool) -> None:
    loader = LoaderRecord(0, "Rows", one, 12, 4)
    shuffled = tuple(
        replace(
            run,
            events=(ShuffleRecord(0, 0.0, 0, 0, 0), *run.events),
            loaders=(replace(loader, sampler="DistributedSampler"),),
        )
        for run in ranks(shares=[[[9, 8], [7, 6]], *[[[0, 1], [2, 3]]] * 5])
    )
    found = evidence(shuffled, replace(reference(), loaders=(loader,)))
    lines = checked(found, "samples").details
    assert any("as they lie" in line for line in lines) is said


def test_which_two_programs_are_compared(tmp_path: Path) -> None:
    """A migrated copy; the last commit; the same program twice; or none."""
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    script.write_text(PROJECT)
    options = Options(script)

    def compared(name: str) -> Pair:
        return pair(options, Settings(), tmp_path / name)

    made = compared("made")
    assert made.baseline == "the working tree"
    assert (made.original / "train.py").read_text() == PROJECT
    right = (made.distributed / "train.py").read_text()
    assert "sync_dist=True" in right
    for helpers in made.distributed.glob("ddp_*.py"):
        (script.parent / helpers.name).write_text(helpers.read_text())

    script.write_text(right)
    alone = compared("alone")
    assert (alone.baseline, alone.migration) == ("the working tree on one device", None)
    assert (alone.original / "train.py").read_text() == right

    script.write_text(PROJECT)
    git(script.parent, "init")
    commit(script.parent, "original")
    script.write_text(right)
    committed = compared("committed")
    assert committed.baseline.startswith("git revision ")
    assert (committed.original / "train.py").read_text() == PROJECT
    commit(script.parent, "migrated")
    assert compared("again").baseline == "the working tree on one device"

    logged = '        self.log("train/loss"'
    left_out = f"        if loss > 9:\n            return\n{logged}"
    script.write_text(PROJECT.replace(logged, left_out))
    with pytest.raises(CannotCompare, match="a step that one process leaves out"):
        compared("refused")
