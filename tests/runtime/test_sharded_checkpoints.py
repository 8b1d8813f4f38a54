"""Checkpoints of which each rank writes its shards: who reads them, and what a kill leaves.

Each is read in this one process and held against the file that rank 0 wrote of the same state.
"""

from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime import load_sharded, save_sharded
from tests.support.torchrun import torchrun

pytestmark = [pytest.mark.training, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "runtime" / "scripts" / "stored.py"
MOMENTS = (
    "before any file",
    "after its shards",
    "before the table of contents",
    "after the shards of all",
    "before the rest is there",
)


def run(folder: Path, ranks: int, *arguments: str, killed: bool = False) -> None:
    done = torchrun(SCRIPT, ranks, *arguments, cwd=folder, env={"PYTHONPATH": str(ROOT)})
    assert (done.returncode != 0) is killed, done.stderr


def read(file: Path) -> Any:
    return load_sharded(file, map_location="cpu")


def assert_same(one: Any, other: Any) -> None:
    """The same nests of the same values, tensors bit for bit."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert getattr(one, "_metadata", None) == getattr(other, "_metadata", None)
        assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, (list, tuple)):
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert one == other


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks wrote."""
    folder = tmp_path_factory.mktemp("stored")
    run(folder, 2, "fsdp", "-", "two.pt")
    return folder


def test_a_checkpoint_of_shards_is_what_rank_0_would_write(two: Path) -> None:
    names = {file.name for file in (two / "two.pt" / "1").iterdir()}
    assert names == {"checkpoint", ".metadata", "__0_0.distcp", "__1_0.distcp"}
    state = read(two / "two.pt")
    assert state["epoch"] == 3, "rank 0's"
    assert any(v.dtype is torch.bfloat16 for v in state["net"].values())
    assert_same(state, torch.load(two / "two.pt.whole"))


def test_no_file_of_shards_has_the_model_whole(two: Path) -> None:
    rest = torch.load(two / "two.pt" / "1" / "checkpoint")
    assert all(rest["net"][f"{n}.weight"].is_meta for n in (0, 3, 5))
    assert not rest["rng"].is_meta


@pytest.mark.parametrize(
    ("how", "ranks", "source"),
    [
        pytest.param("fsdp", 4, "two.pt", id="two-to-four"),
        pytest.param("fsdp", 2, "two.pt.whole", id="whole-to-two", marks=pytest.mark.thorough),
        pytest.param("fsdp", 3, "two.pt", id="two-to-three", marks=pytest.mark.thorough),
        pytest.param("hybrid", 4, "two.pt", id="two-to-hybrid", marks=pytest.mark.thorough),
        pytest.param("ddp", 2, "two.pt", id="two-to-ddp", marks=pytest.mark.thorough),
        pytest.param("plain", 1, "two.pt", id="two-to-one", marks=pytest.mark.thorough),
        pytest.param("fsdp", 1, "two.pt", id="two-to-a-rank-alone", marks=pytest.mark.thorough),
    ],
)
def test_others_load_it_bit_for_bit(two: Path, how: str, ranks: int, source: str) -> None:
    target = f"{how}-{ranks}-{source}"
    run(two, ranks, how, source, target)
    assert_same(read(two / target), torch.load(two / "two.pt.whole"))
    if how == "fsdp":
        assert len(list((two / target / "1").glob("*.distcp"))) == ranks


@pytest.mark.thorough
def test_what_four_wrote_is_read_by_two(two: Path) -> None:
    run(two, 4, "fsdp", "two.pt", "four.pt")
    run(two, 2, "fsdp", "four.pt", "again.pt")
    assert_same(read(two / "again.pt"), torch.load(two / "two.pt.whole"))


@pytest.mark.parametrize("ddp_first", [False, True], ids=["plain", "ddp"])
@pytest.mark.thorough
def test_a_file_of_one_process_or_of_ddp_is_sharded(tmp_path: Path, ddp_first: bool) -> None:
    run(tmp_path, 1, "plain", "-", "one.pt")
    if ddp_first:
        run(tmp_path, 2, "ddp", "one.pt", "ddp.pt")
    source = "ddp.pt" if ddp_first else "one.pt"
    run(tmp_path, 2, "fsdp", source, source)  # takes the file's place
    assert (tmp_path / source).is_dir()
    assert [one.name for one in (tmp_path / source).iterdir()] == ["1"]
    assert_same(read(tmp_path / source), torch.load(tmp_path / "one.pt.whole"))


def before_and_after(
    two: Path, folder: Path, moment: str, how: str = "fsdp"
) -> tuple[Any, Any, Any]:
    """What was there, what a killed save leaves, and what it would have written."""
    shutil.copytree(two, folder, dirs_exist_ok=True)
    old = read(folder / "two.pt")
    run(folder, 2, how, "-", "two.pt", moment, killed=True)
    return old, read(folder / "two.pt"), torch.load(folder / "two.pt.whole")


def altered(two: Path, folder: Path) -> Path:
    """The checkpoint, but of another epoch, so that it can be told from a new one."""
    shutil.copytree(two, folder / "kept")
    file = folder / "kept" / "two.pt" / "1" / "checkpoint"
    state = torch.load(file)
    state["epoch"] = 99
    torch.save(state, file)
    return folder / "kept"


@pytest.mark.parametrize(
    "moment",
    [MOMENTS[0], *(pytest.param(m, marks=pytest.mark.thorough) for m in MOMENTS[1:])],
)
def test_a_kill_leaves_the_checkpoint_of_before(two: Path, tmp_path: Path, moment: str) -> None:
    old, left, _ = before_and_after(altered(two, tmp_path), tmp_path / "run", moment)
    assert old["epoch"] == 99
    assert_same(left, old)


@pytest.mark.thorough
def test_a_kill_after_the_last_file_leaves_the_new_one(two: Path, tmp_path: Path) -> None:
    folder, moment = tmp_path / "run", "before the old one is removed"
    old, left, new = before_and_after(altered(two, tmp_path), folder, moment)
    assert (old["epoch"], left["epoch"]) == (99, 3)
    assert_same(left, new)
    run(folder, 2, "fsdp", "two.pt", "two.pt")
    assert [one.name for one in (folder / "two.pt").iterdir()] == ["3"], "the others are removed"
    assert_same(read(folder / "two.pt"), new)


@pytest.mark.thorough
def test_a_kill_while_a_directory_takes_a_files_place_leaves_it(two: Path, tmp_path: Path) -> None:
    shutil.copy(two / "two.pt.whole", tmp_path / "two.pt")
    run(tmp_path, 2, "fsdp", "-", "two.pt", "between the names", killed=True)
    assert not (tmp_path / "two.pt").exists()
    assert_same(read(tmp_path / "two.pt"), torch.load(two / "two.pt.whole"))
    run(tmp_path, 2, "fsdp", "two.pt", "two.pt")
    assert [one.name for one in tmp_path.glob("two.pt*")].count("two.pt.sharded") == 0
    assert_same(read(tmp_path / "two.pt"), torch.load(two / "two.pt.whole"))


def test_one_process_writes_a_file_unless_a_directory_is_there(two: Path, tmp_path: Path) -> None:
    state = read(two / "two.pt")
    save_sharded(state, tmp_path / "new.pt")
    assert_same(torch.load(tmp_path / "new.pt"), state)
    shutil.copytree(two / "two.pt", tmp_path / "two.pt")
    save_sharded({**state, "epoch": 4}, tmp_path / "two.pt")
    assert [one.name for one in (tmp_path / "two.pt").iterdir()] == ["2"]
    assert_same(read(tmp_path / "two.pt"), {**state, "epoch": 4})


def test_a_directory_without_a_whole_checkpoint_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "two.pt" / "1").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        load_sharded(tmp_path / "two.pt")


def test_of_several_ranks_a_tensor_is_read_where_it_is_used(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = torch.load(two / "two.pt.whole")["net"]["0.weight"]
    monkeypatch.setattr("runtime.fsdp_checkpoints.get_world_size", lambda: 2)
    weight = read(two / "two.pt")["net"]["0.weight"]
    assert type(weight).__name__ == "_Stored"
    assert weight.shape == whole.shape
    assert torch.equal(weight + 1, whole + 1)
    assert_same(copy.deepcopy(weight), whole)
    with pytest.raises(RuntimeError, match="cannot be changed"):
        weight.add_(1)


def test_several_ranks_need_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.fsdp_checkpoints.is_distributed", lambda: True)
    with open(os.devnull, "wb") as file, pytest.raises(TypeError, match="give its path"):
        save_sharded({}, file)
