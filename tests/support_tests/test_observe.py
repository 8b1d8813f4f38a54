"""The harness sees what real runs do, lets the right one pass and finds each classic mistake."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from tests.support import compare
from tests.support.recording import Run
from tests.support.run import run_distributed, run_single

pytestmark = pytest.mark.training
SCRIPTS = Path(__file__).with_name("scripts")
EXACT = {"float64": True, "neutral_dropout": True}


def project(folder: Path) -> Path:
    copied = shutil.copytree(SCRIPTS, folder / "project", dirs_exist_ok=True)
    return Path(copied)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("single")
    return run_single(project(folder), ["single.py"], folder / "out", global_order=2, **EXACT)


@pytest.fixture(scope="module")
def correct(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("correct")
    return run_distributed(project(folder), ["ranks.py"], 2, folder / "out", **EXACT)


@pytest.fixture(scope="module")
def same_samples(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("same_samples")
    return run_distributed(project(folder), ["ranks.py", "same-samples"], 2, folder, **EXACT)


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Three mistakes that do not hide each other, in one launch."""
    folder = tmp_path_factory.mktemp("careless")
    argv = ["ranks.py", "bypass", "print", "file"]
    return run_distributed(project(folder), argv, 2, folder / "out", **EXACT)


def test_ranks_done_right_train_as_one_process(reference: Run, correct: list[Run]) -> None:
    assert [run.status for run in (reference, *correct)] == ["finished"] * 3, correct[0].stderr
    assert len(reference.steps) == 14
    compare.same_training(reference, correct, tolerance=1e-10)
    compare.ranks_identical(correct)
    compare.samples_partition(reference, correct)
    assert compare.files_once(correct) == {"log.csv": 0, "model.pt": 0}
    assert compare.stdout_once(correct) == reference.stdout
    compare.stderr_once(correct)
    assert compare.same_collectives(correct) == ("init_process_group", "destroy_process_group")


def test_what_a_correct_run_did_is_counted(reference: Run, correct: list[Run]) -> None:
    for run in correct:
        assert (run.count("ddp"), run.count("backward"), run.count("ddp_forward")) == (1, 14, 14)
        assert all(event.sync for event in run.events if event.kind == "ddp_forward")
        assert not run.group_left_open
        assert compare.evaluation_samples(run) == (tuple(range(90)),) * 2
    assert compare.evaluation_samples(reference) == (tuple(range(90)),) * 2
    assert all(norm and norm > 0 for norm in reference.steps[0].gradient_norms)


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        pytest.param(compare.ranks_identical, r"rank 1 leaves rank 0 at step 0", id="no-sync"),
        pytest.param(compare.files_once, r"log\.csv is changed by rank 0 and by", id="file"),
        pytest.param(compare.stdout_once, r"rank 1 prints 2 lines", id="print"),
    ],
)
def test_each_mistake_is_found(
    careless: list[Run], judge: Callable[[list[Run]], object], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        judge(careless)


def test_same_samples_on_every_rank_are_found(reference: Run, same_samples: list[Run]) -> None:
    compare.ranks_identical(same_samples)  # which is why comparing ranks is not enough
    with pytest.raises(AssertionError, match=r"step 0: ranks 0 and 1 both train on 25 samples"):
        compare.samples_partition(reference, same_samples)
    with pytest.raises(AssertionError, match=r"rank 0 leaves the reference at step 0"):
        compare.same_training(reference, same_samples)


def test_a_rank_that_skips_a_batch_fails_within_the_short_timeout(tmp_path: Path) -> None:
    argv = ["ranks.py", "skip-batch"]
    runs = run_distributed(project(tmp_path), argv, 2, tmp_path / "out", timeout=3)
    assert runs[0].returncode != 0
    assert "RuntimeError" in runs[0].status
    assert "3000ms" in runs[0].stderr
    assert runs[1].status == "running"


def test_observing_changes_nothing(tmp_path: Path) -> None:
    plain, observed = project(tmp_path / "plain"), project(tmp_path / "observed")
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}  # sums depend on it in the last bit
    done = subprocess.run(
        [sys.executable, "single.py"],
        cwd=plain,
        env=threads,
        capture_output=True,
        text=True,
        check=True,
    )
    run = run_single(observed, ["single.py"], tmp_path / "out")
    assert run.stdout == done.stdout
    assert run.returncode == 0
    for name in ("log.csv", "model.pt"):
        assert (observed / name).read_bytes() == (plain / name).read_bytes()


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The probe as it is, and with the patches on."""
    folder = tmp_path_factory.mktemp("probe")
    argv = ["probe.py", "--flag", "--"]
    patched = {"global_order": 2, "first_epoch": 5, "neutral_batchnorm": True, **EXACT}
    return (
        run_single(project(folder), argv, folder / "plain"),
        run_single(project(folder), argv, folder / "patched", **patched),
    )


def said(run: Run, key: str) -> str:
    return next(line for line in run.stdout.splitlines() if line.startswith(key))


def test_a_script_is_run_as_python_would(probes: tuple[Run, Run]) -> None:
    for run in probes:
        assert said(run, "argv") == (
            "argv ['probe.py', '--flag', '--'] beside helper main __main__"
        )
        assert (run.returncode, run.exit_code, run.status) == (3, 3, "exited")


def test_a_module_is_run_as_python_would(tmp_path: Path) -> None:
    folder = project(tmp_path).resolve()
    run = run_single(folder, ["-m", "helper_beside_the_script", "x"], tmp_path / "out")
    assert run.stdout == f"helper ['x'] {folder}\n"


def test_loaders_of_every_kind_are_followed(probes: tuple[Run, Run]) -> None:
    fetches = [event for event in probes[0].events if event.kind == "fetch"]
    batches = [(event.passed, event.samples) for event in fetches if event.loader == 2]
    one_pass = [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10)]
    assert batches == [(number, samples) for number in (0, 1) for samples in one_pass]
    streamed = [sample for event in fetches if event.loader == 3 for sample in event.samples]
    assert len(set(streamed)) == 4


def test_the_global_order_is_that_of_the_distributed_sampler(probes: tuple[Run, Run]) -> None:
    plain, patched = probes

    def order(epoch: int, seed: int, drop_last: bool) -> list[int]:
        data: Any = range(11)
        samplers: list[DistributedSampler[int]] = [
            DistributedSampler(data, 2, rank, True, seed, drop_last) for rank in (0, 1)
        ]
        for sampler in samplers:
            sampler.set_epoch(epoch)
        return [i for pair in zip(*samplers, strict=True) for i in pair]

    seed = int(said(patched, "seed").split()[1])
    assert said(patched, "lengths") == "lengths 3 12"
    assert said(plain, "lengths") == "lengths 3 11"
    shuffled = ast.literal_eval(said(patched, "shuffled").partition(" ")[2])
    assert shuffled == [order(5, seed, False), order(6, seed, False)]
    cut = ast.literal_eval(said(patched, "cut").partition(" ")[2])
    assert cut == [order(5, seed, True)[:8]]
    assert said(patched, "drawn") == said(plain, "drawn") == "drawn 3 3"


def test_the_global_order_draws_what_the_original_drew(probes: tuple[Run, Run]) -> None:
    plain, patched = (float(said(run, "state").split()[1]) for run in probes)
    assert plain == patched


def test_layers_that_depend_on_the_batch_or_on_chance_are_neutral(
    probes: tuple[Run, Run],
) -> None:
    plain, patched = (
        [line.split()[1:] for line in run.stdout.splitlines() if line.startswith("neutral")]
        for run in probes
    )
    names = ["dropout", "channels", "recurrent", "attention", "batch-norm"]
    assert plain == [[name, "False"] for name in names]
    assert patched == [[name, "True"] for name in names]


def test_files_are_followed(probes: tuple[Run, Run]) -> None:
    changes = [(event.operation, event.path) for event in probes[0].files]
    assert changes == [
        ("os.mkdir", "made"),
        ("os.mkdir", "made/deep"),
        ("open", "made/part"),
        ("os.rename", "made/part"),
        ("os.rename", "made/whole"),
        ("os.remove", "made/whole"),
        ("torch.save", "made/weights.pt"),
    ]


def test_float64_reaches_the_script(probes: tuple[Run, Run]) -> None:
    plain, patched = probes
    assert said(plain, "dtype") == "dtype torch.float32 torch.float32 torch.float32"
    assert said(patched, "dtype") == "dtype torch.float64 torch.float64 torch.float64"
    assert said(patched, "kept") == said(plain, "kept") == "kept 0.5"
    assert len(plain.steps) == len(patched.steps) == 1
    assert torch.tensor([1.0]).dtype == torch.float32  # here, outside the run, nothing changed
