"""``ddpify convert-checkpoint``: both ways bit for bit, and what it refuses."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ddpify import cli

Taken = pytest.CaptureFixture[str]
MODEL = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 1).bfloat16())
ADAM = torch.optim.AdamW(MODEL[:2].parameters())  # the first one sets a variable of torch's


class Odd:
    """Of a class that no one else knows."""


@pytest.fixture
def state() -> dict[str, Any]:
    """A checkpoint of a model, its optimizer and plain values."""
    MODEL[:2](torch.randn(6, 7)).sum().backward()
    ADAM.step()
    return {
        "model": MODEL.state_dict(),
        "optimizer": ADAM.state_dict(),
        "best": (0.5, [torch.zeros(0, 3), torch.arange(3)], None),
        "rng": torch.get_rng_state(),
        7: "seven",
    }


def run(*arguments: object) -> int:
    return cli.main(["convert-checkpoint", *map(str, arguments)])


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype is other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, Mapping):
        assert list(one) == list(other)
        assert getattr(one, "_metadata", None) == getattr(other, "_metadata", None)
        assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, Sequence) and not isinstance(one, str):
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert one == other


def test_there_and_back_bit_for_bit(tmp_path: Path, state: dict[str, Any], capsys: Taken) -> None:
    torch.save(state, tmp_path / "one.pt")
    assert run(tmp_path / "one.pt", tmp_path / "shards") == cli.CLEAN
    assert capsys.readouterr().out == f"Wrote {tmp_path / 'shards'}.\n"
    rest = torch.load(tmp_path / "shards" / "1" / "checkpoint")
    assert rest["model"]["0.weight"].is_meta
    assert rest["best"] == (0.5, rest["best"][1], None)
    assert run(tmp_path / "shards", tmp_path / "two.pt") == cli.CLEAN
    assert_same(torch.load(tmp_path / "two.pt"), state)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one.pt", "shards", "two.pt"]


def test_programs_read_it(tmp_path: Path, state: dict[str, Any]) -> None:
    from runtime import load_sharded

    torch.save(state, tmp_path / "one.pt")
    assert run(tmp_path / "one.pt", tmp_path / "shards") == cli.CLEAN
    assert_same(load_sharded(tmp_path / "shards"), state)


def test_a_file_from_before_archives(tmp_path: Path, state: dict[str, Any]) -> None:
    torch.save(state, tmp_path / "one.pt", _use_new_zipfile_serialization=False)
    assert run(tmp_path / "one.pt", tmp_path / "shards") == cli.CLEAN
    assert run(tmp_path / "shards", tmp_path / "two.pt") == cli.CLEAN
    assert_same(torch.load(tmp_path / "two.pt"), state)


def test_what_is_there_stays_without_force(
    tmp_path: Path, state: dict[str, Any], capsys: Taken
) -> None:
    torch.save(state, tmp_path / "one.pt")
    for target in (tmp_path / "two", tmp_path / "one.pt"):
        target.exists() or target.mkdir()
        assert run(tmp_path / "one.pt", target) == cli.FAILED
        assert f"{target}: is there already; --force" in capsys.readouterr().err
    assert run(tmp_path / "one.pt", tmp_path / "one.pt", "--force") == cli.CLEAN, "in its place"
    assert (tmp_path / "one.pt").is_dir()
    assert run(tmp_path / "one.pt", tmp_path / "two", "--force") == cli.CLEAN
    assert_same(torch.load(tmp_path / "two"), state)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda p: None, "there is no such file", id="missing"),
        pytest.param(lambda p: p.mkdir(), "holds no whole checkpoint", id="empty"),
        pytest.param(lambda p: (p / "1").mkdir(parents=True), "no whole checkpoint", id="half"),
        pytest.param(lambda p: p.write_text("hello"), "is no checkpoint", id="text"),
        pytest.param(lambda p: p.write_bytes(b""), "one.pt: ", id="nothing"),
        pytest.param(lambda p: p.write_bytes(b"PK\3\4" * 99), "one.pt: ", id="damaged"),
        pytest.param(lambda p: torch.save({"epoch": 3}, p), "holds no weights", id="no-weights"),
        pytest.param(lambda p: torch.save(Odd(), p), "neither tensors nor plain", id="object"),
        pytest.param(lambda p: torch.save(nn.Linear(1, 1), p), "neither tensors", id="model"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, make: Any, said: str, capsys: Taken) -> None:
    make(tmp_path / "one.pt")
    before = sorted(tmp_path.rglob("*"))
    assert run(tmp_path / "one.pt", tmp_path / "two") == cli.FAILED
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_lost_shards_are_said(tmp_path: Path, state: dict[str, Any], capsys: Taken) -> None:
    torch.save(state, tmp_path / "one.pt")
    assert run(tmp_path / "one.pt", tmp_path / "shards") == cli.CLEAN
    for file in (tmp_path / "shards" / "1").glob("*.distcp"):
        file.unlink()
    assert run(tmp_path / "shards", tmp_path / "two.pt") == cli.FAILED
    assert capsys.readouterr().err.startswith(f"ddpify: {tmp_path / 'shards'}: ")
    assert not (tmp_path / "two.pt").exists()


def test_without_torch_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Taken
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "ddpify.converting", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert run(tmp_path / "one.pt", tmp_path / "two") == cli.FAILED
    assert capsys.readouterr().err == (
        "ddpify: convert-checkpoint needs torch: pip install 'ddpify[runtime]'\n"
    )
