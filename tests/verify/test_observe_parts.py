"""The observer's parts, each by itself: signatures, contents, names, and the reader."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

from ddpify.verify.observer import contents, streams
from ddpify.verify.observer.naming import name_parameters, without_wrappers
from ddpify.verify.observer.order import GlobalOrder, Shuffles
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.places import Places
from ddpify.verify.observer.record import Recorder
from ddpify.verify.observer.signature import Signer, digest, whole
from ddpify.verify.read import load_run, progress


def distance(left: torch.Tensor, right: torch.Tensor, signer: Signer) -> float:
    return float((signer.sign(left) - signer.sign(right)).norm())


@pytest.mark.parametrize("size", [513, 70_001, 3_000_000], ids=str)
@pytest.mark.parametrize("kind", ["random", "one element", "everywhere the same"])
def test_sketches_differ_as_much_as_the_tensors(size: int, kind: str) -> None:
    draw = torch.Generator().manual_seed(size)
    tensor = torch.randn(size, generator=draw, dtype=torch.float64)
    change = {
        "random": torch.randn(size, generator=draw, dtype=torch.float64),
        "one element": torch.zeros(size).index_fill_(0, torch.tensor([size // 2]), 3.0),
        "everywhere the same": torch.full((size,), 1e-6),
    }[kind]
    measured = distance(tensor, tensor + change, Signer())
    assert measured == pytest.approx(float(change.double().norm()), rel=0.2)
    assert Signer().sign(tensor).shape == (512,)
    assert distance(tensor, tensor.clone(), Signer()) == 0


def test_small_tensors_and_full_signatures_are_the_values_themselves() -> None:
    small, large = torch.arange(512.0).reshape(2, 256), torch.arange(600.0)
    assert Signer().sign(small).tolist() == list(range(512))
    assert Signer(full=True).sign(large).tolist() == list(range(600))
    assert Signer().sign(torch.tensor([1 + 2j])).tolist() == [1, 2]
    assert Signer().sign(torch.empty(0)).tolist() == []


def test_signing_draws_nothing_from_the_scripts_streams() -> None:
    before = streams.digests()
    Signer().sign(torch.ones(1000))
    assert streams.digests() == before


def test_digests_are_of_the_bytes() -> None:
    assert digest(torch.zeros(3)) != digest(-torch.zeros(3))
    assert digest(torch.ones(2, 2).t()) == digest(torch.ones(2, 2))
    assert digest(torch.ones(2, dtype=torch.bfloat16)) != digest(torch.ones(2))
    assert digest(whole(torch.eye(2).to_sparse())) == digest(torch.eye(2))
    assert digest(torch.empty(0)) == digest(torch.empty(0))


def content(batch: Any, samples: int) -> list[str]:
    found = contents.digests(batch, samples)
    assert len(found) == samples
    return found


IMAGES = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(IMAGES, id="tensor"),
        pytest.param([IMAGES, torch.tensor([0, 1])], id="collated tuples"),
        pytest.param({"x": IMAGES, "name": ["a", "b"]}, id="collated dicts"),
        pytest.param((tuple(IMAGES), ({"box": torch.ones(2, 4)}, {"box": 0})), id="detection"),
        pytest.param([{"x": IMAGES[0]}, {"x": IMAGES[1]}], id="list of samples"),
        pytest.param(IMAGES.numpy(), id="numpy"),
        pytest.param(["one text", "another"], id="texts"),
    ],
)
def test_each_sample_has_content_of_its_own(batch: Any) -> None:
    first, second = content(batch, 2)
    assert first != second
    assert content(batch, 2) == [first, second]


def test_content_does_not_depend_on_the_rest_of_the_batch() -> None:
    labels = torch.tensor([5, 6])
    first = content({"x": IMAGES, "y": [labels, labels.flip(0)]}, 2)[0]
    changed = torch.stack([IMAGES[0], IMAGES[1] + 1])
    pair = [torch.tensor([5, 7]), torch.tensor([6, 7])]
    assert content({"x": changed, "y": pair}, 2)[0] == first
    boxes = ({"box": torch.ones(2, 4)}, {"box": torch.ones(1, 4)})
    others = ({"box": torch.ones(2, 4)}, {"box": torch.ones(3, 4)})
    images = tuple(IMAGES)
    assert content((images, boxes), 2)[0] == content((images, others), 2)[0]
    assert content((images, boxes), 2)[1] != content((images, others), 2)[1]


def test_a_batch_without_parts_is_known_as_a_whole() -> None:
    assert content(object(), 2) == content(object(), 2)  # without its address
    assert content("a", 2) != content("b", 2)
    assert contents.count({"a": torch.ones(()), "b": [torch.ones(7, 2)]}) == 7
    assert contents.digest({"x": IMAGES}) != contents.digest({"x": IMAGES + 1})


def test_streams_go_on_where_they_were() -> None:
    with streams.kept():
        before = streams.digests()
        with streams.kept():
            streams.seed(("sample", 1))
            drawn = torch.rand(1).item(), np.random.rand()
            assert streams.digests() != before
        assert streams.digests() == before
        streams.seed(("sample", 1))
        assert drawn == (torch.rand(1).item(), np.random.rand())


def test_names_leave_wrappers_out() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.ModuleDict({"module": nn.Linear(1, 1, bias=False)}))
    trainer = nn.ModuleDict({"net": nn.DataParallel(model)})
    names = name_parameters([list(trainer.parameters())])
    assert names == ["net.0.weight", "net.0.bias", "net.1.module.weight"]
    assert without_wrappers("_orig_mod.a._checkpoint_wrapped_module.b") == "a.b"


def test_the_epoch_of_a_pass_is_what_the_ranks_had_or_what_should_follow() -> None:
    assert [Shuffles(9, 1, (2, 5, 7)).epoch(passed) for passed in range(4)] == [2, 5, 7, 8]
    assert [Shuffles(9, 1, (2, 2)).epoch(passed) for passed in range(3)] == [2, 2, 3]
    assert [Shuffles(9, 1).epoch(passed) for passed in range(2)] == [0, 1]


def test_places_are_the_users_lines(tmp_path: Path) -> None:
    here = Path(__file__)
    assert Places(here.parent).site().startswith(f"{here.name}:")
    assert Places(here.parents[1]).site().startswith(f"verify/{here.name}:")
    assert Places(tmp_path).site().startswith(f"{here.name}:")  # the nearest outside of torch


class Owner:
    @staticmethod
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_what_is_scripted_is_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(torch.jit, "script", lambda function: function(torch.ones(1)))
    patcher = Patcher()
    patcher.before(Owner, "double", seen.append)
    Owner.double(torch.ones(1))
    assert len(seen) == 1
    torch.jit.script(lambda x: Owner.double(x))
    assert len(seen) == 1
    Owner.double(torch.ones(1))
    assert len(seen) == 2


def record(out: Path, *lines: dict[str, Any]) -> None:
    numbered = ({"i": n, "s": 0, "t": 0.0, **line} for n, line in enumerate(lines, 1))
    text = "\n".join(map(json.dumps, numbered))
    (out / "rank0.jsonl").write_text(text + '\n{"k": "st', encoding="utf-8")


def entered(name: str, kind: str = "collective") -> dict[str, Any]:
    return {"k": kind, "name": name, "site": "a.py:1", "size": 8, "ranks": 2, "fsdp": ""}


def left(number: int, done: bool = True) -> dict[str, Any]:
    return {"k": "leave", "of": number, "done": done}


ERROR = {"k": "finish", "status": "RuntimeError: timeout", "exit_code": 1}
WAITING = [
    pytest.param([entered("reduce"), left(1)], "", id="came back"),
    pytest.param([entered("reduce"), left(1), entered("barrier")], "barrier at a.py:1", id="in"),
    pytest.param([entered("backward", "implicit")], "backward at a.py:1", id="implicit"),
    pytest.param(
        [entered("backward", "implicit"), entered("reduce")], "reduce at a.py:1", id="innermost"
    ),
    pytest.param([entered("reduce"), left(1, False), ERROR], "reduce at a.py:1", id="timed out"),
    pytest.param(
        [entered("reduce"), left(1, False), {"k": "backward", "loss": 1.0}, ERROR],
        "",
        id="caught, and failed elsewhere",
    ),
    pytest.param(
        [entered("reduce"), {"k": "finish", "status": "exited", "exit_code": 0}], "", id="exited"
    ),
]


@pytest.mark.parametrize(("lines", "waiting"), WAITING)
def test_where_a_process_waits(lines: list[dict[str, Any]], waiting: str, tmp_path: Path) -> None:
    record(tmp_path, *lines)
    assert load_run(tmp_path, 0).waiting == waiting


def test_explicit_collectives_only_are_collectives(tmp_path: Path) -> None:
    record(tmp_path, entered("constructor", "implicit"), entered("reduce"), left(2), left(1))
    assert [(one.name, one.done) for one in load_run(tmp_path, 0).collectives] == [("reduce", True)]


def test_progress_is_of_all_ranks(tmp_path: Path) -> None:
    for rank, loss in ((0, None), (1, 0.25)):
        recorder = Recorder(tmp_path, rank)
        recorder.steps, recorder.loss = 3 + rank, loss
        recorder.note("begin")
        recorder.note("backward", loss=loss)
    now = progress(tmp_path)
    assert (now.steps, now.loss, now.events) == (4, 0.25, 4)


def test_what_the_observer_does_is_not_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    with recorder.own():
        recorder.note("collective", name="reduce", site="", size=0)
        assert recorder.quiet
    assert not recorder.quiet
    assert recorder.spent > 0
    assert load_run(tmp_path, 0).events == ()


def test_what_observing_takes_is_not_the_runs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    recorder = Recorder(tmp_path, 0)
    clock[0] += 5
    with recorder.own():
        clock[0] += 3
        with recorder.own():
            clock[0] += 4
    assert (recorder.elapsed, recorder.now(), recorder.spent) == (12, 5, 7)


def test_a_run_that_wrote_nothing_did_not_start(tmp_path: Path) -> None:
    run = load_run(tmp_path, 3, stdout="a", stderr="b")
    assert (run.rank, run.status, run.stdout, run.stderr) == (3, "not started", "a", "b")


def test_a_loader_that_is_only_measured_takes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """`configure_optimizers` asks how long a loader is, and throws it away."""
    shards = [DistributedSampler(range(8), 2, rank, seed=5) for rank in (0, 1)]
    dealt = [i for pair in zip(*shards, strict=True) for i in pair]
    for kind in (RandomSampler, DistributedSampler, DataLoader):  # to be as they were afterwards
        for name in ("__init__", "__iter__", "__len__"):
            monkeypatch.setattr(kind, name, getattr(kind, name))
    GlobalOrder(2, [Shuffles(8, None, (0,)), Shuffles(8, 5, (0,))]).start(Patcher())
    loaders = [DataLoader(list(range(8)), 4, shuffle=True) for _ in range(3)]
    assert len(loaders[0]) == 2
    _, second = ([i for batch in loader for i in batch.tolist()] for loader in loaders[1:])
    assert second == dealt
