"""What goes wrong when fixtures/lightning_imagenet, for one device, is started on two as it is.

Each test asserts that the wrong thing does happen; of the migrated project, the opposite is asked.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from tests.lightning.runs import (
    FIXTURE,
    Rank,
    Run,
    copied,
    plain,
    read_checkpoint,
    read_json,
    train,
)

pytest.importorskip("lightning")
pytestmark = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(240)]

# Nothing is left to chance, nor to batch statistics; 23 batches an epoch, one change of resolution.
SETTINGS = "--precision 64-true --norm group --no-augment --epochs 2".split()
TRAIN, VAL, BATCH, STEPS = 1500, 297, 64, 23
# What one process writes into the folder of its run, besides checkpoints and TensorBoard's files.
WRITTEN = {
    "config.json",
    "metrics.json",
    "model_final.pt",
    "model_info.txt",
    "resolution_schedule.json",
    "results.json",
    "training_log.txt",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lightning")


@pytest.fixture(scope="module")
def one(folder: Path) -> Run:
    """One process, with the batches that several make together."""
    root = copied(FIXTURE, folder / "one")
    arguments = [*SETTINGS, "--name", "run"]
    return train(root, folder / "one_seen", *arguments, environment={"OBSERVED_ORDER": "1"})


@pytest.fixture(scope="module")
def prepared(one: Run, folder: Path) -> Path:
    """The project with its data on disk, and no run."""
    return copied(one.root, folder / "prepared", "logs")


@pytest.fixture(scope="module")
def two(prepared: Path, folder: Path) -> Run:
    """Two processes of Lightning's launcher."""
    root = copied(prepared, folder / "two")
    return train(root, folder / "two_seen", *SETTINGS, "--devices", "2", processes=2, trainer={})


@pytest.fixture(scope="module")
def named(prepared: Path, folder: Path) -> Run:
    """Two processes of torchrun; the folder of the run has a name."""
    root = copied(prepared, folder / "named")
    arguments = [*SETTINGS, "--name", "run"]
    return train(root, folder / "named_seen", *arguments, processes=2, launcher="torchrun")


@pytest.fixture(scope="module")
def first(folder: Path) -> Run:
    """Two processes with no data on disk; one takes a while to write a cache."""
    root = copied(FIXTURE, folder / "first")
    slow = {"OBSERVED_SLOW": "0.5"}
    arguments = [*SETTINGS, "--name", "run"]
    return train(root, folder / "first_seen", *arguments, processes=2, environment=slow)


@pytest.fixture(scope="module")
def tested(prepared: Path, folder: Path) -> Run:
    """Two processes that agree on the best checkpoint, and evaluate it."""
    root = copied(prepared, folder / "tested")
    agreed = {"OBSERVED_SAME_BEST": "1"}
    arguments = [*SETTINGS, "--name", "run", "--test"]
    return train(root, folder / "tested_seen", *arguments, processes=2, environment=agreed)


@pytest.fixture(scope="module")
def resumed(one: Run, folder: Path) -> Run:
    """Two processes that continue what one has begun."""
    root = copied(one.root, folder / "resumed")
    arguments = [*SETTINGS, "--epochs", "3", "--resume"]
    return train(root, folder / "resumed_seen", *arguments, processes=2, timeout=10, limit=80)


def histories(run: Run, key: str) -> list[list[float]]:
    """A number of metrics.json by epoch, for each file that there is."""
    files = [read_json(path) for path in run.files("logs/*/metrics.json")]
    return [[row[key] for row in file["val"]] for file in files]


def line(rank: Rank, start: str) -> str:
    """The first line that a rank prints with this start."""
    return next(text for text in rank.console.splitlines() if text.strip().startswith(start))


# ------------------------------------------------------------------- one process: as it should be


def test_one_process_writes_each_thing_once(one: Run) -> None:
    assert one.finished, one.output
    assert {path.name for path in one.files("logs/run/*.*")} == WRITTEN
    saved = {path.name for path in one.files("logs/run/checkpoints/*")}
    assert saved > {"last.ckpt", "phase_8px.ckpt", "phase_12px.ckpt"}
    assert one.ranks[0].parameters.shape[0] == 2 * STEPS + 1


def test_one_process_repeats_itself(prepared: Path, folder: Path, one: Run) -> None:
    """Bit for bit, and so does all it writes and prints; the data was on disk the second time."""
    root = copied(prepared, folder / "again")
    arguments = [*SETTINGS, "--name", "run"]
    again = train(root, folder / "again_seen", *arguments, environment={"OBSERVED_ORDER": "1"})
    assert again.ranks[0].parameters.equal(one.ranks[0].parameters)
    for name in ("training_log.txt", "metrics.json", "model_info.txt"):
        before, after = (run.root / "logs" / "run" / name for run in (one, again))
        assert plain(after.read_text()) == plain(before.read_text())
    assert (again.root / "logs/run/results.json").read_text() == (
        (one.root / "logs/run/results.json").read_text().replace(str(one.root), str(root))
    )


# ------------------------------------------------------------------------------ training itself


def test_the_batches_grow_and_the_steps_are_halved(one: Run, two: Run) -> None:
    assert two.finished, two.output
    assert one.ranks[0].last("step")["step"] == 2 * STEPS
    for rank in two.ranks:
        assert rank.last("step")["step"] == 2 * (STEPS // 2)
        assert {len(batch) for batch in rank.batches("train", 0, TRAIN)} == {BATCH}


def test_the_parameters_go_another_way(one: Run, two: Run) -> None:
    alone, ranks = one.ranks[0].parameters, [rank.parameters for rank in two.ranks]
    assert ranks[0].equal(ranks[1])
    assert alone[0].equal(ranks[0][0])
    assert (alone[1] - ranks[0][1]).abs().max() > 1e-4


def test_the_schedule_is_cut_off(one: Run, two: Run) -> None:
    """It was made for the steps of one process: the rate never comes down."""
    highest = 0.2
    assert "13 of 46 steps are warm-up" in two.ranks[0].console
    assert one.ranks[0].last("step")["rates"][0] < highest / 100
    assert two.ranks[0].last("step")["rates"][0] > highest / 2


def test_rebuilt_loaders_are_not_split(two: Run) -> None:
    """Lightning splits the first loader; not the one that the callback puts in its place."""
    first, second = two.ranks
    shares = [set(rank.samples("train", 0, TRAIN)) for rank in (first, second)]
    assert not shares[0] & shares[1]
    assert len(shares[0] | shares[1]) == 2 * (STEPS // 2) * BATCH

    assert first.batches("train", 1, TRAIN) == second.batches("train", 1, TRAIN)
    assert len(set(first.samples("train", 1, TRAIN))) == STEPS // 2 * BATCH < TRAIN / 2


def test_what_is_prepared_stays_on_the_first_rank(two: Run) -> None:
    """``prepare_data`` assigns: the other rank normalises with the numbers of ``__init__``."""
    known = [rank.last("fit")["datamodule"] for rank in two.ranks]
    assert known[0]["mean"] == pytest.approx(0.3045, abs=1e-4)
    assert known[0]["std"] == pytest.approx(0.3760, abs=1e-4)
    assert (known[1]["mean"], known[1]["std"]) == (0.5, 0.5)
    assert len(known[0]["class_names"]) == 10
    assert known[1]["class_names"] == []


# -------------------------------------------------------------------------------------- metrics


@pytest.mark.parametrize("key", ["val/loss", "val/acc", "val/error", "train/loss", "train/acc"])
def test_logged_metrics_are_those_of_a_rank(two: Run, key: str) -> None:
    first, second = (rank.last("metrics")["metrics"][key] for rank in two.ranks)
    assert abs(first - second) > 1e-3


@pytest.mark.parametrize("key", ["val/f1", "train/f1"])
def test_torchmetrics_are_those_of_all(two: Run, key: str) -> None:
    """They synchronise themselves; nothing is to be done."""
    first, second = (rank.last("metrics")["metrics"][key] for rank in two.ranks)
    assert first == second


def test_sums_are_those_of_a_rank(one: Run, two: Run) -> None:
    assert one.ranks[0].last("metrics")["metrics"]["val/images"] == VAL
    assert [rank.last("metrics")["metrics"]["val/images"] for rank in two.ranks] == [149, 149]
    assert "of 297 images are right" in one.ranks[0].console
    assert all("of 149 images are right" in rank.console for rank in two.ranks)
    assert line(one.ranks[0], "EPOCH 1 TRAIN").endswith(f"Images: {STEPS * BATCH}")
    assert line(two.ranks[0], "EPOCH 1 TRAIN").endswith(f"Images: {STEPS // 2 * BATCH}")


def test_lists_of_losses_are_those_of_a_rank(two: Run) -> None:
    first, second = (read_json(path)["history"] for path in two.files("logs/*/results.json"))
    assert abs(first[-1]["loss"] - second[-1]["loss"]) > 1e-3


def test_a_sample_is_validated_twice(one: Run, two: Run) -> None:
    """297 are no multiple of two: one is repeated, and counted in what the ranks add up."""
    shares = [Counter(rank.samples("validate", 0, VAL)) for rank in two.ranks]
    both = shares[0] + shares[1]
    assert (len(both), both.total()) == (VAL, VAL + 1)

    def counted(run: Run) -> set[int]:
        tables = [matrix for file in histories(run, "confusion") for matrix in file]
        return {sum(map(sum, matrix)) for matrix in tables}

    assert counted(one) == {VAL}
    assert counted(two) == {VAL + 1}


# ---------------------------------------------------------------------------- files and console


def test_a_folder_per_process(one: Run, two: Run) -> None:
    """It is named by the time at which a process comes to it; checkpoints all go to the first's."""
    folders = two.files("logs/*")
    assert len(one.files("logs/*")) == 1
    assert len(folders) == 2
    for folder in folders:
        assert {path.name for path in folder.glob("*.*")} == WRITTEN
    saved = [sorted(path.name for path in (folder / "checkpoints").iterdir()) for folder in folders]
    assert "last.ckpt" in saved[0]
    assert saved[1] == []


def test_two_histories(two: Run) -> None:
    first, second = histories(two, "acc")
    assert first != second
    assert histories(two, "f1")[0] == histories(two, "f1")[1]


def test_the_log_has_each_line_twice(one: Run, named: Run) -> None:
    assert named.finished, named.output
    name = "logs/run/training_log.txt"
    log = (named.root / name).read_text()
    for text in ("TRAINING ResNet (local)", "EPOCH 1/2 - Starting...", "FINISHED after 2 epochs"):
        assert (one.root / name).read_text().count(text) == 1
        assert log.count(text) == 2
    values = [text for text in log.splitlines() if text.startswith("EPOCH 2 VAL")]
    assert len(values) == len(set(values)) == 2
    # the classes, which one rank does not know
    assert log.count("    digit_3") == 2 * 1


def test_files_are_written_by_both(one: Run, named: Run) -> None:
    """And what stands in them at the end is what the later of the two knew."""
    for name in sorted(WRITTEN):
        path = f"logs/run/{name}"
        counts = [rank.written(named.root).count(path) for rank in named.ranks]
        assert min(counts) >= 1
        if name != "training_log.txt":
            assert counts == [one.ranks[0].written(one.root).count(path)] * 2


def test_the_console_says_everything_twice(one: Run, named: Run) -> None:
    for text in (
        "Run folder:",
        "Data at 8x8:",
        "steps are warm-up",
        "Model has 38,266 parameters",
        "Model graph written",
        "Resolution schedule:",
        "Model info saved",
        "Epoch 1/2 | Learning Rate:",
        "Epoch 2: resolution 8 -> 12",
        "datasets rebuilt",
        "verified: batches of",
        "saved phase_8px.ckpt",
        "Best checkpoint:",
    ):
        assert one.ranks[0].console.count(text) == 1
        assert named.output.count(text) == 2


def test_checkpoints_and_tensorboard_are_lightnings(one: Run, named: Run) -> None:
    """It writes them once; nothing is to be done."""

    def saved(run: Run) -> int:
        return len([path for path in run.files("logs/run/checkpoints/*") if path.suffix == ".ckpt"])

    assert saved(named) == saved(one) == 4
    assert len(named.files("logs/run/tensorboard/events*")) == 1
    assert not any("tensorboard" in path for path in named.ranks[1].written(named.root))


def test_a_checkpoint_has_the_numbers_of_a_rank(two: Run) -> None:
    """State of callbacks is saved by the first rank, and knows only what that has seen."""
    checkpoint = read_checkpoint(two.files("logs/*/checkpoints/last.ckpt")[0])
    history = checkpoint["callbacks"]["TextLoggingCallback"]["val_history"]
    first, second = (accuracies[: len(history)] for accuracies in histories(two, "acc"))
    assert [row["acc"] for row in history] == first != second


def test_caches_are_written_by_both(first: Run) -> None:
    """Each finds that there is no cache, and writes it, at the same time and to the same file."""
    written = [set(rank.written(first.root)) for rank in first.ranks]
    assert "data/cache/train_8.npz" in written[0] & written[1]
    # the images and their statistics are Lightning's business: prepare_data
    assert "data/stats.json" in written[0] - written[1]
    assert not any(path.startswith("data/train/") for path in written[1])


# --------------------------------------------------------------------- which file, which decision


def test_the_best_checkpoint_is_another_one(two: Run) -> None:
    """Its name has the accuracy of a rank; on the second rank, there is no such file."""
    first, second = (Path(rank.last("best")["path"]) for rank in two.ranks)
    assert first.parent == second.parent
    assert first.exists()
    assert not second.exists()


def test_to_evaluate_the_best_checkpoint_fails(prepared: Path, folder: Path) -> None:
    root = copied(prepared, folder / "best")
    arguments = [*SETTINGS, "--epochs", "1", "--name", "run", "--test"]
    run = train(root, folder / "best_seen", *arguments, processes=2, timeout=10, limit=80)
    assert not run.finished
    assert "FileNotFoundError" in run.output
    assert not run.files("logs/run/predictions.csv")


def test_half_of_the_predictions_are_written(tested: Run) -> None:
    """Both ranks write their own into one file; 149 of 297 are left."""
    assert tested.finished, tested.output
    path = "logs/run/predictions.csv"
    with (tested.root / path).open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 149
    for name in (path, "logs/run/test_results.json"):
        assert [rank.written(tested.root).count(name) for rank in tested.ranks] == [1, 1]


@pytest.mark.parametrize("key", ["test/loss", "test/acc"])
def test_each_rank_has_its_own_test_result(tested: Run, key: str) -> None:
    first, second = (rank.last("tested")["metrics"][key] for rank in tested.ranks)
    assert abs(first - second) > 1e-3


def test_ranks_resume_from_different_files(resumed: Run) -> None:
    """The second finds the folder that the first has just made, with nothing in it."""
    first, second = (rank.last("fit")["checkpoint"] for rank in resumed.ranks)
    assert first == "logs/run/checkpoints/last.ckpt"
    assert second is None
    assert [rank.last("start")["epoch"] for rank in resumed.ranks] == [2, 0]
    assert "No checkpoint found" in resumed.ranks[1].console


def test_ranks_that_resume_apart_do_not_finish(resumed: Run) -> None:
    """They step at different rates, to different parameters, and meet in the wrong collective."""
    assert not resumed.finished
    first, second = (rank.last("step") for rank in resumed.ranks)
    assert first["step"] == second["step"] + 2 * STEPS
    assert first["rates"][0] < second["rates"][0] / 2
    assert not any(rank.of("metrics") for rank in resumed.ranks)


def test_one_rank_stops_alone(two: Run, prepared: Path, folder: Path) -> None:
    """The accuracy that is aimed at lies between those of the ranks: one goes on, and waits."""
    low, high = sorted(history[0] for history in histories(two, "acc"))
    assert high - low > 0.01
    root = copied(prepared, folder / "target")
    target = ["--target-acc", str((low + high) / 2), "--name", "run"]
    arguments = [*SETTINGS, *target]
    run = train(root, folder / "target_seen", *arguments, processes=2, timeout=10, limit=80)
    assert not run.finished
    assert sorted("is reached, stopping" in rank.console for rank in run.ranks) == [False, True]
    assert sorted(len(rank.of("epoch")) for rank in run.ranks) == [1, 2]


# ------------------------------------------------------------------------------- devices and ranks


def test_torchrun_alone_trains_twice(prepared: Path, folder: Path) -> None:
    """``Trainer(devices=1)`` under torchrun: two trainings that know nothing of each other."""
    root = copied(prepared, folder / "apart")
    arguments = [*SETTINGS, "--epochs", "1", "--name", "run"]
    run = train(
        root, folder / "apart_seen", *arguments, processes=2, launcher="torchrun", trainer={}
    )
    assert [rank.last("trainer")["world"] for rank in run.ranks] == [1, 1]
    assert [rank.last("step")["step"] for rank in run.ranks] == [STEPS, STEPS]
    first, second = (rank.samples("train", 0, TRAIN) for rank in run.ranks)
    assert first == second
