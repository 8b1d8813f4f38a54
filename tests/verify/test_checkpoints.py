"""Files both runs left, read by the interpreter that trained."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ddpify.verify.checkpoints import checkpoint_paths, compare_checkpoints, texts
from ddpify.verify.evidence import CheckpointPair
from ddpify.verify.interpreter import examined
from tests.verify.factories import change, job, ranks, reference


def _state(scale: float = 1.0, bias: float = 0.0) -> dict[str, torch.Tensor]:
    return {"fc.weight": scale * torch.ones(100), "fc.bias": torch.full((4,), bias)}


def _resumable(average: float) -> dict[str, Any]:
    state = {0: {"exp_avg_sq": torch.full((3,), average)}}
    return {"model": _state(), "opt": {"state": state, "param_groups": [{"lr": 0.1}]}}


class Net(nn.Module):
    """A class of this file, which the interpreter that reads checkpoints cannot import."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        nn.init.constant_(self.fc.weight, scale)
        nn.init.zeros_(self.fc.bias)


WRAPPED = {f"module.{name}": value for name, value in _state().items()}
SAME = {"model": _state(), "epoch": 3, "name": "x", "best": [0.5, 0.25]}
RANDOM = {"model": _state(), "rng_state": torch.zeros(8), "time": 1.0}
CONTENTS: dict[str, tuple[Any, Any]] = {
    "same": (SAME, SAME),
    "largest": (
        {"model": _state(), "ema": OrderedDict(_state())},
        {"model": _state(), "ema": OrderedDict(_state(1.25))},
    ),
    "optimizer": (_resumable(1.0), _resumable(1.5)),
    "zero": (_state(), _state(bias=1e-14)),
    "prefix": (_state(), WRAPPED),
    "nested-prefix": ({"model": _state()}, {"model": WRAPPED}),
    "dataparallel": ({"net": WRAPPED}, {"net": _state(1.25)}),
    "fewer": (_state(), {"fc.weight": torch.ones(100)}),
    "shape": (_state(), {**_state(), "fc.bias": torch.zeros(5)}),
    "type": (_state(), {**_state(), "fc.bias": torch.zeros(4).half()}),
    "scalar": (SAME, {**SAME, "best": [torch.tensor(0.5), 0.25]}),
    "random": (RANDOM, {**RANDOM, "rng_state": torch.ones(8), "time": 2.0}),
    "model": (Net(1.0), Net(3.0)),
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckpointPair]:
    """All read at once: each reading starts an interpreter with torch."""
    both = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("many")
    for name, contents in CONTENTS.items():
        for folder, content in zip(both, contents, strict=True):
            torch.save(content, folder / name)
    for folder in both:
        (folder / "notes").write_text("no checkpoint")
        torch.save({"best": {str(folder / "last.pt"): 0.5}}, folder / "paths")
    torch.save(_state(), both[0] / "damaged")
    (both[1] / "damaged").write_bytes((both[0] / "damaged").read_bytes()[:100])
    paths = [*CONTENTS, "notes", "damaged", "paths"]
    with examined(sys.executable) as interpreter:
        return {pair.path: pair for pair in compare_checkpoints(interpreter, *both, paths)}


def test_the_same_content_can_be_loaded_and_does_not_differ(
    pairs: dict[str, CheckpointPair],
) -> None:
    assert pairs["same"] == CheckpointPair("same", "", 0.0, 0.0)


def test_a_path_as_a_key_does_not_say_in_which_copy(pairs: dict[str, CheckpointPair]) -> None:
    assert pairs["paths"] == CheckpointPair("paths", "", 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "difference", "state"),
    [
        ("largest", 0.25, 0.0),
        ("optimizer", 0.0, 0.5),
        ("random", 0.0, 0.0),  # streams and clocks may differ
        ("scalar", 0.0, 0.0),  # loads alike
        ("model", 2.0, 0.0),
    ],
)
def test_differences_are_relative_and_an_optimizers_are_told_from_weights(
    pairs: dict[str, CheckpointPair], name: str, difference: float, state: float
) -> None:
    found = pairs[name]
    assert found == CheckpointPair(name, "", pytest.approx(difference), pytest.approx(state))


def test_the_prefix_of_data_parallel_is_told_and_what_is_below_it_compared(
    pairs: dict[str, CheckpointPair],
) -> None:
    found = pairs["dataparallel"]
    assert (found.problem, found.unprefixed) == ("", True)
    assert found.difference == pytest.approx(0.25)
    assert not pairs["same"].unprefixed


def test_a_bias_of_zero_is_measured_by_the_model(pairs: dict[str, CheckpointPair]) -> None:
    assert 0 < pairs["zero"].difference < 1e-10


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("prefix", "the ranks' keys have a `module.` prefix, the original's have none"),
        ("nested-prefix", "the ranks' keys have a `module.` prefix, the original's have none"),
        ("fewer", "missing keys: fc.bias"),
        ("shape", "fc.bias is float32[5], not float32[4]"),
        ("type", "fc.bias is float16[4], not float32[4]"),
    ],
)
def test_problems_say_what_is_wrong(
    pairs: dict[str, CheckpointPair], name: str, problem: str
) -> None:
    assert pairs[name].problem == problem


def test_files_that_are_no_checkpoints_are_left_out_and_damaged_ones_are_not(
    pairs: dict[str, CheckpointPair],
) -> None:
    assert "notes" not in pairs
    assert pairs["damaged"].problem.startswith("the ranks' file cannot be loaded: ")


def test_an_interpreter_that_fails_is_a_problem(tmp_path: Path) -> None:
    with examined(sys.executable) as interpreter:
        interpreter.server.process.kill()
        (found,) = compare_checkpoints(interpreter, tmp_path, tmp_path, ["a.pt"])
    assert found.problem.startswith("cannot be read: ")


def test_checkpoints_are_what_torch_saved_on_both_sides_under_its_last_name() -> None:
    def saving(run: Any, *events: Any) -> Any:
        return replace(run, events=(*run.events, *events))

    renamed = (
        change("tmp.bin", "torch.save"),
        change("tmp.bin", "os.rename", existed=True),
        change("final.bin", "os.rename"),
    )
    one = saving(reference(), change("final.bin", "torch.save"), change("only.bin", "torch.save"))
    many = saving(ranks()[0], *renamed, change("log.txt")), ranks()[1]
    left = ["final.bin", "log.txt", "only.bin", "copied.pth"]
    assert checkpoint_paths(one, job(many), left) == ("final.bin", "copied.pth")


def test_texts_are_short_and_decodable(tmp_path: Path) -> None:
    folders = tmp_path / "one", tmp_path / "many"
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "log.csv").write_text(f"loss\n0.{number}\n")
        (folder / "data.bin").write_bytes(b"\xff\xfe\x00")
        (folder / "zeros").write_bytes(b"\0" * 8)
        (folder / "long.txt").write_text("x" * (2**20 + 1))
        (folder / "folder").mkdir()
    paths = ["log.csv", "data.bin", "zeros", "long.txt", "folder", "missing"]
    found = texts(*folders, paths)
    assert [(t.path, t.reference, t.distributed) for t in found] == [
        ("log.csv", "loss\n0.0\n", "loss\n0.1\n")
    ]
