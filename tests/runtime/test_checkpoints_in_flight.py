"""Sharded checkpoints that are written as the run goes on: whose values they have, who waits.

Their shards are held back until training has changed, in place, all that was saved.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.runtime.test_sharded_checkpoints import (
    MOMENTS,
    altered,
    assert_same,
    before_and_after,
    read,
    run,
)
from tests.support.torchrun import Completed, torchrun

pytestmark = [pytest.mark.training, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "runtime" / "scripts" / "in_flight.py"


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks wrote after they had gone on."""
    folder = tmp_path_factory.mktemp("late")
    run(folder, 2, "async", "-", "two.pt")
    return folder


def did(folder: Path, *arguments: str) -> Completed:
    return torchrun(SCRIPT, 2, *arguments, cwd=folder, env={"PYTHONPATH": str(ROOT)})


def epoch(path: Path) -> float:
    """Of the checkpoint, each of whose weights has to be that number."""
    state = read(path)
    assert set(state["net"]["weight"].flatten().tolist()) == {float(state["epoch"])}
    return float(state["epoch"])


def test_it_has_the_values_of_the_moment_of_the_call(late: Path) -> None:
    names = {file.name for file in (late / "two.pt" / "1").iterdir()}
    assert names == {"checkpoint", ".metadata", "__0_0.distcp", "__1_0.distcp"}
    assert_same(read(late / "two.pt"), torch.load(late / "two.pt.whole"))


@pytest.mark.parametrize("ranks", [3, pytest.param(1, marks=pytest.mark.thorough)])
def test_another_number_of_ranks_goes_on_from_it(late: Path, ranks: int) -> None:
    run(late, ranks, "async" if ranks > 1 else "plain", "two.pt", f"{ranks}.pt")
    assert_same(read(late / f"{ranks}.pt"), torch.load(late / "two.pt.whole"))


@pytest.mark.parametrize(
    "moment",
    ["as training goes on", *(pytest.param(m, marks=pytest.mark.thorough) for m in MOMENTS)],
)
def test_a_kill_leaves_the_checkpoint_of_before(late: Path, tmp_path: Path, moment: str) -> None:
    kept = altered(late, tmp_path)
    old, left, _ = before_and_after(kept, tmp_path / "run", moment, "async")
    assert old["epoch"] == 99
    assert_same(left, old)


@pytest.mark.thorough
def test_a_kill_after_the_last_file_leaves_the_new_one(late: Path, tmp_path: Path) -> None:
    kept, moment = altered(late, tmp_path), "before the old one is removed"
    old, left, new = before_and_after(kept, tmp_path / "run", moment, "async")
    assert (old["epoch"], left["epoch"]) == (99, 3)
    assert_same(left, new)


@pytest.mark.thorough
def test_a_file_gives_way_before_the_run_goes_on(tmp_path: Path) -> None:
    run(tmp_path, 1, "plain", "-", "two.pt")
    run(tmp_path, 2, "async", "two.pt", "two.pt")
    assert [one.name for one in (tmp_path / "two.pt").iterdir()] == ["1"]
    assert_same(read(tmp_path / "two.pt"), torch.load(tmp_path / "two.pt.whole"))


def test_the_next_save_waits_for_the_one_before(tmp_path: Path) -> None:
    done = did(tmp_path, "save")
    assert done.returncode == 0, done.stderr
    found = {path.name: epoch(path) for path in tmp_path.glob("*.pt")}
    assert found == {"last.pt": 4, "other.pt": 3, "new.pt": 5}
    assert [one.name for one in (tmp_path / "last.pt").iterdir()] == ["4"]


@pytest.mark.parametrize("what", ["load", pytest.param("end", marks=pytest.mark.thorough)])
def test_a_load_and_the_end_wait_for_it(tmp_path: Path, what: str) -> None:
    done = did(tmp_path, what)
    assert done.returncode == 0, done.stderr
    assert epoch(tmp_path / "last.pt") == 1


@pytest.mark.thorough
def test_where_the_script_fails_it_is_written_still(tmp_path: Path) -> None:
    done = did(tmp_path, "raise")
    assert done.returncode != 0
    assert "in the script" in done.stderr
    assert epoch(tmp_path / "last.pt") == 1


@pytest.mark.parametrize(
    "what",
    ["end", *(pytest.param(one, marks=pytest.mark.thorough) for one in ("save", "load"))],
)
def test_what_the_background_raises_ends_all_ranks(tmp_path: Path, what: str) -> None:
    done = did(tmp_path, what, "full")
    assert done.returncode != 0
    assert all("OSError: the disk is full" in text for text in done.rank_stderr)
    assert [text.count("went on") for text in done.rank_stdout] == [int(what == "end")] * 2
    assert epoch(tmp_path / "last.pt") == 0
