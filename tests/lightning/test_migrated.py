"""fixtures/lightning_imagenet, migrated: what test_original.py shows to go wrong is right.

Several processes take rank 0's order; a run of one process to compare them with is given the same
(OBSERVED_ORDER), since Lightning seeds anew when it sets up several.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from ddpify.pipeline import migrate
from ddpify.settings import Settings
from tests.lightning.runs import FIXTURE, Run, copied, plain, read_json, train
from tests.lightning.test_original import SETTINGS, STEPS, TRAIN, VAL, WRITTEN
from tests.projects import write

pytest.importorskip("lightning")
pytestmark = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(400)]

ARGUMENTS = [*SETTINGS, "--name", "run", "--test"]
ORDER = {"OBSERVED_ORDER": "1"}
TEXTS = sorted(WRITTEN - {"model_final.pt"} | {"predictions.csv", "test_results.json"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("migrated")


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    """The migrated project."""
    root = copied(FIXTURE, folder / "source")
    outcome = migrate((root / "train.py",), Settings())
    assert not outcome.refusals, [one.message for one in outcome.refusals]
    write(outcome.changes, root)
    return root


@pytest.fixture(scope="module")
def original(folder: Path) -> Run:
    """One process, before."""
    return train(copied(FIXTURE, folder / "original"), folder / "original_seen", *ARGUMENTS)


@pytest.fixture(scope="module")
def one(source: Path, folder: Path) -> Run:
    """One process, after."""
    return train(copied(source, folder / "one"), folder / "one_seen", *ARGUMENTS)


@pytest.fixture(scope="module")
def ordered(source: Path, folder: Path) -> Run:
    """The same in the order of several processes."""
    root = copied(source, folder / "ordered")
    return train(root, folder / "ordered_seen", *ARGUMENTS, environment=ORDER)


@pytest.fixture(scope="module", params=[2, 4])
def several(request: pytest.FixtureRequest, source: Path, folder: Path) -> Run:
    """So many processes, with no data on disk; of 3 batches of an evaluation, 4 get parts."""
    number: int = request.param
    root = copied(source, folder / str(number))
    seen = folder / f"{number}_seen"
    slow = {**ORDER, "OBSERVED_SLOW": "0.5"}
    return train(root, seen, *ARGUMENTS, processes=number, limit=200, environment=slow)


def files(run: Run) -> list[str]:
    """The files of a run, but for TensorBoard's, which have the time in their names."""
    paths = (path for path in run.files("logs/**/*") if path.is_file())
    return sorted(p.relative_to(run.root).as_posix() for p in paths if "tfevents" not in p.name)


def text(run: Run, name: str) -> str:
    """A file of a run without what differs by where and when it ran."""
    found = (run.root / "logs" / "run" / name).read_text()
    return plain(found.replace(str(run.root), ""))


def numbers(value: object) -> list[float]:
    """The numbers in what JSON gives."""
    if isinstance(value, (dict, list)):
        parts = value.values() if isinstance(value, dict) else value
        return [number for part in parts for number in numbers(part)]
    return [float(value)] if isinstance(value, (int, float)) else []


def test_one_device_is_as_before(original: Run, one: Run) -> None:
    assert original.finished, original.output
    assert one.finished, one.output
    assert one.ranks[0].parameters.equal(original.ranks[0].parameters)
    assert files(one) == files(original)
    for name in TEXTS:
        assert text(one, name) == text(original, name), name
    before, after = (
        plain(run.ranks[0].console.replace(str(run.root), "")) for run in (original, one)
    )
    assert after == before


def test_several_take_the_steps_of_one(ordered: Run, several: Run) -> None:
    assert several.finished, several.output
    alone = ordered.ranks[0].parameters
    assert len(alone) == 2 * STEPS + 1
    for rank in several.ranks:
        assert rank.last("step")["step"] == 2 * STEPS
        assert (rank.parameters - alone).abs().max() < 1e-10


def test_each_batch_is_divided(ordered: Run, several: Run) -> None:
    """Also in the epoch for which a callback has exchanged the loader."""
    for epoch in (0, 1):
        shares = [rank.batches("train", epoch, TRAIN) for rank in several.ranks]
        whole = [sorted(batch) for batch in ordered.ranks[0].batches("train", epoch, TRAIN)]
        parts = zip(*shares, strict=True)
        assert [sorted(i for part in batch for i in part) for batch in parts] == whole


def test_each_sample_is_evaluated_once(several: Run) -> None:
    for stage, passes in (("validate", 2), ("test", 1)):
        batches = [event for rank in several.ranks for event in rank.of("batch")]
        seen = [i for one in batches if one["stage"] == stage for i in one["indices"]]
        assert sorted(seen) == sorted([*range(VAL)] * passes), stage


def test_several_report_the_numbers_of_one(ordered: Run, several: Run) -> None:
    alone, ranks = ordered.ranks[0], several.ranks
    for kind in ("metrics", "tested"):
        expected = alone.last(kind)["metrics"]
        for rank in ranks:
            # means of float32 numbers, of which Lightning makes float32 ones
            assert rank.last(kind)["metrics"] == pytest.approx(expected, abs=1e-6)
    for name in ("metrics.json", "results.json", "test_results.json"):
        mine, theirs = (numbers(read_json(r.root / "logs/run" / name)) for r in (several, ordered))
        assert mine == pytest.approx(theirs, abs=1e-6), name
    best = {rank.last("best")["path"] for rank in ranks}
    assert len(best) == 1


def test_several_write_what_one_writes(ordered: Run, several: Run) -> None:
    assert files(several) == files(ordered)
    for name in sorted(set(TEXTS) - {"metrics.json", "results.json", "test_results.json"}):
        assert text(several, name) == text(ordered, name), name
    with open(several.root / "logs/run/predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["image"]) for row in rows] == list(range(VAL))
    for rank in several.ranks[1:]:
        assert not [path for path in rank.written(several.root) if "tfevents" not in path]


def test_several_print_what_one_prints(ordered: Run, several: Run) -> None:
    consoles = [plain(rank.console.replace(str(several.root), "")) for rank in several.ranks]
    alone = plain(ordered.ranks[0].console.replace(str(ordered.root), ""))
    # of 3 batches 4 ranks have parts: rank 0's shape, the last digits of float32 means
    differ = re.compile(r"batches of \(\d+,|(?<=\.\d{6})\d+")
    assert differ.sub("", consoles[0]) == differ.sub("", alone)
    assert not any(consoles[1:])


def test_all_stop_together(source: Path, folder: Path) -> None:
    root = copied(source, folder / "stopped")
    arguments = [*SETTINGS, "--name", "run", "--target-acc", "0.1"]
    run = train(root, folder / "stopped_seen", *arguments, processes=2, timeout=15)
    assert run.finished, run.output
    assert [rank.last("step")["step"] for rank in run.ranks] == [STEPS, STEPS]


def test_a_batch_that_does_not_divide_ends_the_job(source: Path, folder: Path) -> None:
    root = copied(source, folder / "odd")
    arguments = [*SETTINGS, "--name", "run", "--batch-size", "63"]
    run = train(root, folder / "odd_seen", *arguments, processes=2, timeout=15)
    assert run.returncode not in (None, 0)
    assert "batch size 63 cannot be split over 2 ranks: use 62 or 64" in run.output
