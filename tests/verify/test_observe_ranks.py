"""What ranks do together is seen: steps, collectives, where they wait, how they end."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ddpify.verify.read import load_run
from ddpify.verify.recording import (
    Backward,
    ForwardRecord,
    HeldRecord,
    RunRecord,
    ShuffleRecord,
    StepTaken,
)
from tests.verify.observing import (
    OBSERVE,
    PROGRAMS,
    environment,
    project,
    run_ranks,
    run_single,
    said,
)

pytestmark = pytest.mark.training
LINES = (PROGRAMS / "train.py").read_text("utf-8").splitlines()


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if text in line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[RunRecord]:
    probe = f"--probe={folder / 'probe'}"
    command = "train.py accumulate frozen open"
    return run_ranks(project(folder), command, folder / "out", "--dtype=float64", probe)


@pytest.fixture(scope="module")
def alone(folder: Path, ranks: list[RunRecord]) -> RunRecord:
    """One process, after the ranks: it uses their probe batch."""
    options = ("--dtype=float64", f"--probe={folder / 'probe'}")
    return run_single(project(folder / "one"), "train.py fail", folder / "alone", *options)


def test_ranks_know_who_they_are(ranks: list[RunRecord]) -> None:
    assert [run.status for run in ranks] == ["finished"] * 2, ranks[0].stderr
    assert [(run.rank, run.world_size, run.exit_code) for run in ranks] == [(0, 2, 0), (1, 2, 0)]
    assert [run.backend for run in ranks] == ["gloo"] * 2
    assert [run.device for run in ranks] == ["cpu"] * 2
    assert all(run.group_left_open for run in ranks)
    assert [said(run, "trained") for run in ranks] == ["0", "1"]


def test_names_are_those_inside_the_wrapper(ranks: list[RunRecord]) -> None:
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]
    assert [p.name for p in ranks[0].optimizers[0].parameters] == names
    assert ranks[0].wrapped == tuple(names[:-1])  # the last one is frozen


def test_signatures_and_digests_agree_where_ranks_do(ranks: list[RunRecord]) -> None:
    left, right = ranks
    assert len(left.steps) == len(right.steps) == 2
    for one, other in zip(left.steps, right.steps, strict=True):
        assert one.digests == other.digests
        assert one.gradient_digests == other.gradient_digests
        assert one.losses != other.losses  # their shares differ
        assert len(one.losses) == 2  # one synchronised, one not
    sizes = [len(signature) for signature in left.steps[0].parameters]
    assert sizes == [512, 512, 512, 512, 512, 2]
    assert left.optimizers[0].initial_digests == right.optimizers[0].initial_digests


def test_forwards_say_whether_they_synchronise(ranks: list[RunRecord]) -> None:
    kinds = (ForwardRecord, Backward, StepTaken)
    seen = [event for event in ranks[1].events if isinstance(event, kinds)]
    pair = [ForwardRecord, Backward]
    assert [type(event) for event in seen] == [*pair, *pair, StepTaken] * 2 + [ForwardRecord]
    forwards = [event for event in seen if isinstance(event, ForwardRecord)]
    assert [event.sync for event in forwards] == [False, True, False, True, False]
    assert [event.grad for event in forwards] == [True] * 4 + [False]
    assert all(event.buffers for event in forwards)


def test_how_ranks_shuffle_is_noted(ranks: list[RunRecord]) -> None:
    shuffles = [event for event in ranks[1].events if isinstance(event, ShuffleRecord)]
    assert [(one.loader, one.seed, one.epoch) for one in shuffles] == [(0, 1, 0)]


def test_collectives_have_kind_size_and_place(ranks: list[RunRecord]) -> None:
    for run in ranks:
        assert [(c.name, c.size, c.site, c.done) for c in run.collectives] == [
            ("init_process_group", 0, f"train.py:{line_of('init_process_group')}", True),
            ("all_reduce", 24, f"train.py:{line_of('all_reduce')}", True),
        ]
        assert run.waiting == ""


def test_each_process_answers_for_its_model(ranks: list[RunRecord], alone: RunRecord) -> None:
    left, right = (run.probe for run in ranks)
    assert left is not None
    assert right is not None
    assert (left.missing, right.missing) == ("", "")
    assert left.output is not None
    assert left.output.shape == (6,)  # 3 samples, 2 classes
    assert left.digest != right.digest  # each has the buffers of its own last batch
    assert alone.probe is None  # it failed


def test_the_first_probe_batch_is_everyones(folder: Path, ranks: list[RunRecord]) -> None:
    options = ("--dtype=float64", f"--probe={folder / 'probe'}")
    run = run_single(project(folder / "two"), "train.py vanish", folder / "again", *options)
    assert run.status == "running"  # os._exit: nothing else was written …
    assert len(run.steps) == 4  # … and nothing lost
    assert run.probe is None


def test_a_failure_is_recorded_with_its_traceback(alone: RunRecord) -> None:
    assert alone.status == "ValueError: first line\nsecond line"
    assert (alone.exit_code, alone.crashed) == (1, True)
    assert alone.traceback.splitlines()[-2:] == ["ValueError: first line", "second line"]
    assert alone.stderr == alone.traceback
    assert "observe" not in alone.traceback
    assert alone.group_left_open is False


def test_ranks_stop_after_the_same_step(tmp_path: Path) -> None:
    probe = f"--probe={tmp_path / 'probe'}"
    options = ("--steps=2", "--neutralise=batchnorm", probe)
    runs = run_ranks(project(tmp_path), "train.py", tmp_path / "out", *options)
    assert [(run.status, run.exit_code, len(run.steps)) for run in runs] == [
        ("stopped", 0, 2),
        ("stopped", 0, 2),
    ], runs[0].stderr
    assert all("at last" in run.stdout for run in runs)
    assert not any("an exception" in run.stdout or "Traceback" in run.stderr for run in runs)
    digests = [run.probe.digest for run in runs if run.probe is not None]
    assert len(digests) == 2
    assert len(set(digests)) == 1
    one = run_single(project(tmp_path / "one"), "train.py", tmp_path / "one.out", probe)
    assert one.probe is not None
    assert one.probe.output is not None
    assert one.probe.output.shape == (6,)  # the ranks' batch, not its own of 6 samples


def test_a_rank_that_never_comes_ends_in_a_timeout(tmp_path: Path) -> None:
    """The others fail in the backward that waits for it, and torchrun ends it."""
    options = ("train.py backward-of-1", tmp_path / "out", "--group-timeout=3")
    runs = run_ranks(project(tmp_path), *options)
    assert "RuntimeError" in runs[0].status
    assert "3000ms" in runs[0].status
    place = f"train.py:{line_of('loss.backward()')}"
    assert runs[0].waiting == f"backward of DistributedDataParallel at {place}"
    assert runs[1].status == "running"
    assert len(runs[1].steps) == 1


def test_a_hung_rank_shows_where(tmp_path: Path) -> None:
    """Rank 1 waits for the buffers of rank 0, in C++; asked for its stack, it gives it."""
    job = launch(project(tmp_path), "forward-of-0", tmp_path / "out")
    try:
        wait_for(lambda: "forward" in load_run(tmp_path / "out", 1).waiting)
        wait_for(lambda: len(load_run(tmp_path / "out", 0).steps) == 1)
        for rank in job:
            rank.send_signal(signal.SIGUSR1)
        wait_for(lambda: all("Current" in load_run(tmp_path / "out", r).stack for r in (0, 1)))
    finally:
        for rank in job:
            rank.send_signal(signal.SIGSTOP)  # none sees the other go, and writes that down
        for rank in job:
            rank.kill()
            rank.wait()
    first, second = (load_run(tmp_path / "out", rank) for rank in (0, 1))
    assert [first.status, second.status] == ["running", "running"]
    place = f"train.py:{line_of('cross_entropy(net(x), y)')}"
    buffers = "DistributedDataParallel forward (buffer broadcast)"
    assert (first.waiting, second.waiting) == ("", f"{buffers} at {place}")
    assert f"line {line_of('wait()')} in stop_in" in first.stack
    assert "_pre_forward" in second.stack


def launch(folder: Path, word: str, out: Path) -> list[subprocess.Popen[bytes]]:
    """Two ranks without torchrun, which would have to be found and killed as well."""
    with subprocess.Popen([sys.executable, "-c", _PORT], stdout=subprocess.PIPE) as asked:
        port = asked.communicate()[0].decode().strip()
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, str(OBSERVE), f"--out={out}", "--", "train.py", word],
            cwd=folder,
            env={**environment(), **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in (0, 1)
    ]


_PORT = "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    folder = tmp_path_factory.mktemp("sharded")
    probe = f"--probe={folder / 'probe'}"
    return run_ranks(project(folder), "sharded.py", folder / "out", probe)


def test_sharded_parameters_are_seen_whole(sharded: list[RunRecord]) -> None:
    assert [run.status for run in sharded] == ["finished"] * 2, sharded[0].stderr
    for run in sharded:
        (optimizer,) = run.optimizers
        assert [p.shape for p in optimizer.parameters] == [(6, 4), (6,), (1, 6), (1,)]
        assert optimizer.initial[0].tolist() == ast.literal_eval(said(run, "values"))
        assert run.wrapped == ("0.weight", "0.bias", "1.weight", "1.bias")
        assert run.probe is not None
        assert run.probe.missing == "the model is sharded by FSDP"
    one, other = (run.steps for run in sharded)
    assert [step.digests for step in one] == [step.digests for step in other]
    assert [step.gradient_digests for step in one] == [step.gradient_digests for step in other]


def test_what_a_rank_keeps_and_sends_is_counted(sharded: list[RunRecord]) -> None:
    """24 + 6 + 6 + 1 numbers, of which rank 0 has rows 0 to 2 and the last layer's only row."""
    held = [run.held for run in sharded]
    assert held == [HeldRecord(4 * n, 4 * n, 0, groups=1) for n in (12 + 3 + 6 + 1, 12 + 3)]
    for run in sharded:
        names = [call.name for call in run.collectives if call.fsdp]
        assert Counter(names) == {"all_gather_single": 2, "reduce_scatter_single": 2}
        own = [call for call in run.collectives if not call.fsdp]
        assert [call.name for call in own if call.name.startswith(("all_", "reduce_"))] == []
        assert {call.ranks for call in run.collectives} == {0}


def test_a_collective_that_failed_and_was_survived(sharded: list[RunRecord]) -> None:
    assert [said(run, "survived") for run in sharded] == ["RuntimeError"] * 2
    calls = [(call.name, call.done) for call in sharded[0].collectives if call.steps == 2]
    assert calls == [
        ("broadcast", False),
        ("new_group", True),
        ("barrier", True),
        ("destroy_process_group", True),
    ]
    assert sharded[0].group_left_open is False


def test_a_torn_record_is_read_as_far_as_it_goes(
    folder: Path, alone: RunRecord, tmp_path: Path
) -> None:
    written = (folder / "alone" / "rank0.jsonl").read_bytes()
    (tmp_path / "rank0.f64").write_bytes((folder / "alone" / "rank0.f64").read_bytes())
    steps = [at for at in range(len(written)) if written.startswith(b'{"k": "step"', at)]
    (tmp_path / "rank0.jsonl").write_bytes(written[: steps[2] + 40])
    run = load_run(tmp_path, 0)
    assert (run.status, len(run.steps)) == ("running", 2)
    assert all(map(np.array_equal, run.steps[1].parameters, alone.steps[1].parameters))
    assert load_run(tmp_path, 1).status == "not started"


WRITTEN = "emptied.txt added.txt patched.txt cut.txt mode.txt model.pt".split()
BELOW = "data/cache/index.txt data/cache/other.txt data/gone.txt".split()


def test_files_behind_links_stay_as_they_are(tmp_path: Path) -> None:
    """Two ranks write at the same time, so that each may find what the other has replaced."""
    folder, original = project(tmp_path), tmp_path / "original"
    (original / "data" / "cache").mkdir(parents=True)
    names = (*WRITTEN, *BELOW, "only_read.txt")
    for name in names:
        (original / name).write_text("old")
        (original / name).chmod(0o644)
    (original / "known.db").touch()
    for path in original.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "target.txt").write_text("old")
    (folder / "inside_link.txt").symlink_to("target.txt")
    runs = run_ranks(folder, "links.py", tmp_path / "out")

    assert [run.status for run in runs] == ["finished"] * 2, runs[0].stderr + runs[1].stderr
    assert {name: (original / name).read_text() for name in names} == dict.fromkeys(names, "old")
    assert (original / "mode.txt").stat().st_mode & 0o777 == 0o644
    links = {path.name for path in folder.rglob("*") if path.is_symlink()}
    assert links == {"only_read.txt", "inside_link.txt", "other.txt"}
    texts = [(folder / name).read_text() for name in (*WRITTEN[:5], *BELOW[:2])]
    assert texts == ["new", "old+new+new", "Nld", "o", "old", "new", "old"]
    assert (folder / "mode.txt").stat().st_mode & 0o777 == 0o600
    assert not (folder / "data/gone.txt").exists()
    assert (folder / "target.txt").read_text() == "old+new+new"
