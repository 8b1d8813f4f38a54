"""Of one process observe.py sees everything, and changes nothing it was not asked to change."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

from ddpify.verify.read import progress
from ddpify.verify.recording import (
    Backward,
    EndRecord,
    EventRecord,
    Fetch,
    LoaderRecord,
    RunRecord,
    StepTaken,
)
from tests.verify.observing import environment, project, run_single, said

pytestmark = pytest.mark.training
COMMAND = "everything.py --flag --"
CHANGED = (
    *("--dtype=float64", "--global-order=2", "--full"),
    *("--neutralise=dropout", "--neutralise=batchnorm", "--neutralise=augmentation"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plain")


@pytest.fixture(scope="module")
def plain(folder: Path) -> RunRecord:
    return run_single(project(folder), COMMAND, folder / "out")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """The ranks shuffled the first loader of 11 samples with seed 41, in epochs 5 and 9."""
    folder = tmp_path_factory.mktemp("changed")
    (folder / "order.json").write_text("[[11, 41, [5, 9]], [999, 42, [0]]]")
    order = f"--order={folder / 'order.json'}"
    return run_single(project(folder), COMMAND, folder / "out", order, *CHANGED)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("short")
    options = ("--overfit=3", "--batch-factor=2", "--steps=2")
    return run_single(project(folder), COMMAND, folder / "out", *options)


def fetches(run: RunRecord, loader: int) -> list[Fetch]:
    return [one for one in run.events if isinstance(one, Fetch) and one.loader == loader]


def kinds(events: Iterable[EventRecord], *wanted: type[EventRecord]) -> list[Any]:
    return [event for event in events if isinstance(event, wanted)]


def test_observing_changes_nothing(plain: RunRecord, folder: Path, tmp_path: Path) -> None:
    alone = project(tmp_path)
    done = subprocess.run(
        [sys.executable, *COMMAND.split()],
        cwd=alone,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert plain.stdout == done.stdout
    assert plain.stderr == done.stderr
    assert (plain.status, plain.exit_code, done.returncode) == ("exited", 3, 3)
    left, right = (f / "made" / "weights.pt" for f in (alone, folder / "project"))
    assert left.read_bytes() == right.read_bytes()


def test_a_script_is_run_as_python_would(plain: RunRecord) -> None:
    assert said(plain, "argv") == "['everything.py', '--flag', '--'] beside helper main __main__"
    assert said(plain, "file") == "True True"
    assert said(plain, "foreign") == "[]"
    assert said(plain, "late") == "Late"


def test_a_module_is_run_as_python_would(tmp_path: Path) -> None:
    folder = project(tmp_path).resolve()
    run = run_single(folder, "-m helper_beside_the_script x", tmp_path / "out")
    assert run.stdout == f"helper ['x'] {folder}\n"


def test_loaders_are_described(plain: RunRecord) -> None:
    assert plain.loaders[0] == LoaderRecord(0, "list", "RandomSampler", 11, 4)
    assert plain.loaders[3].dataset == "Stream"
    assert plain.loaders[3].samples == 0
    assert plain.loaders[4].dataset == "TensorDataset"
    assert plain.loaders[4].samples == 3


def test_samples_are_followed_through_workers(plain: RunRecord) -> None:
    batches = [(one.passed, one.samples) for one in fetches(plain, 2)]
    one_pass = [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10)]
    assert batches == [(number, samples) for number in (0, 1) for samples in one_pass]
    ends = [one.passed for one in kinds(plain.events, EndRecord) if one.loader == 2]
    assert ends == [0, 1]


def test_samples_are_named_by_the_data_set_beneath_subsets(plain: RunRecord) -> None:
    assert [one.samples for one in fetches(plain, 4)] == [(6, 4), (2,)]


def test_samples_of_a_stream_are_named_by_content(plain: RunRecord) -> None:
    streamed = fetches(plain, 3)
    assert [len(one.samples) for one in streamed] == [2, 2]
    assert len({sample for one in streamed for sample in one.samples}) == 4
    assert all(one.samples == one.contents for one in streamed)


def test_content_belongs_to_the_sample_and_not_to_the_batch(plain: RunRecord) -> None:
    """Loaders 0 and 2 have the same data in another order."""
    known = dict(content for one in fetches(plain, 2) for content in pairs(one))
    assert len(set(known.values())) == 11
    assert all(known[i] == content for one in fetches(plain, 0) for i, content in pairs(one))


def pairs(fetch: Fetch) -> list[tuple[int | str, str]]:
    return list(zip(fetch.samples, fetch.contents, strict=True))


def test_whether_gradients_are_on_is_kept(plain: RunRecord) -> None:
    assert {one.grad for one in fetches(plain, 5)} == {False}
    assert {one.grad for one in fetches(plain, 2)} == {True}


def test_files_are_followed(plain: RunRecord) -> None:
    assert [(one.operation, one.path, one.existed) for one in plain.files] == [
        ("os.mkdir", "made", False),
        ("os.mkdir", "made/deep", False),
        ("open", "made/part", False),
        ("os.rename", "made/part", True),
        ("os.rename", "made/whole", False),
        ("os.remove", "made/whole", True),
        ("torch.save", "made/weights.pt", False),
    ]


def test_parameters_have_the_models_names(plain: RunRecord) -> None:
    names = [[p.name for p in one.parameters] for one in plain.optimizers]
    layers = ["embedding.weight", "first.weight", "first.bias", "unused.weight", "unused.bias"]
    assert names == [
        layers,
        ["group0.0"],
        ["weight", "group0.1"],
        ["Linear.weight", "bias", "Bilinear.weight", "group2.0"],
    ]
    assert [one.kind for one in plain.optimizers] == ["SGD", "LBFGS", "SGD", "SGD"]
    assert plain.optimizers[0].parameters[0].shape == (10, 3)
    assert plain.optimizers[0].parameters[0].dtype == "float32"


def test_a_step_has_its_gradients_and_losses(plain: RunRecord) -> None:
    first = plain.steps[0]
    rows = [row for row in np.split(gradient(first.gradients[0]), 10) if row.any()]
    assert len(rows) == 2  # sparse, of the two words that were looked up
    assert gradient(first.gradients[2]).tolist() == [4, 4, 4]
    assert first.gradients[3] is None
    assert first.gradient_digests[3] == ""
    assert first.losses == (pytest.approx(float(said(plain, "loss"))),)
    assert plain.steps[1].losses[0] == 2
    assert len(plain.steps[1].losses) == int(said(plain, "calls"))
    moved = plain.optimizers[0].initial[2] - first.parameters[2]
    assert moved == pytest.approx([2, 2, 2])


def gradient(signature: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    assert signature is not None
    return signature


def test_the_gradients_of_a_closure_are_those_it_made(plain: RunRecord) -> None:
    assert gradient(plain.steps[1].gradients[0]).tolist() == [4, 4]


def test_a_step_that_a_scaler_skips_is_none(plain: RunRecord) -> None:
    """Four optimizers; the third is fused, and called also with gradients that overflowed."""
    assert [step.optimizer for step in plain.steps] == [0, 1, 2, 2, 3]
    assert plain.steps[3].losses[0] == -np.inf  # of the step that was skipped
    assert gradient(plain.steps[2].gradients[0]).tolist() == [1, 1]  # without the scale of 4
    assert plain.steps[4].learning_rates == (1.0, 0.25, 1.0)


def test_a_backward_inside_a_backward_is_no_other(plain: RunRecord) -> None:
    order = [type(one) for one in kinds(plain.events, Backward, StepTaken)]
    assert order[:3] == [Backward, StepTaken, Backward]


def test_steps_say_what_they_cost(plain: RunRecord) -> None:
    assert all(0 < step.seconds < 60 for step in plain.steps)
    assert all(step.memory > 10_000_000 for step in plain.steps)
    assert set(plain.steps[0].random) == {"torch", "numpy", "random"}
    assert plain.steps[0].random["torch"] != plain.steps[4].random["torch"]
    assert plain.steps[0].random["random"] == plain.steps[4].random["random"]


def test_noise_is_counted_where_it_is_trained_with(plain: RunRecord, changed: RunRecord) -> None:
    assert (plain.noise.dropout, plain.noise.batchnorm, plain.noise.augmentation) == (8, 1, 8)
    assert (changed.noise.dropout, changed.noise.batchnorm) == (0, 0)
    assert changed.noise.augmentation == 0


def test_float64_reaches_the_script(plain: RunRecord, changed: RunRecord) -> None:
    assert said(plain, "dtype") == "torch.float32 torch.float32 torch.float32"
    assert said(changed, "dtype") == "torch.float64 torch.float64 torch.float64"
    assert said(changed, "kept") == said(plain, "kept") == "0.5"
    assert changed.optimizers[0].parameters[0].dtype == "float64"
    assert torch.tensor([1.0]).dtype == torch.float32  # here, outside the run, nothing changed


def test_the_global_order_is_that_of_the_distributed_sampler(
    plain: RunRecord, changed: RunRecord
) -> None:
    assert said(changed, "lengths") == "3 12"
    assert said(plain, "lengths") == "3 11"
    shuffled = ast.literal_eval(said(changed, "shuffled"))
    assert shuffled == [order(5, 41, False), order(9, 41, False)]
    own_seed = int(said(changed, "seed"))  # of the next loader the ranks told nothing
    assert ast.literal_eval(said(changed, "cut")) == [order(0, own_seed, True)[:8]]
    assert said(changed, "drawn") == said(plain, "drawn") == "3 3"


def order(epoch: int, seed: int, drop_last: bool) -> list[int]:
    """What two ranks draw together."""
    data: Any = range(11)
    samplers: list[DistributedSampler[int]] = [
        DistributedSampler(data, 2, rank, True, seed, drop_last) for rank in (0, 1)
    ]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    return [i for pair in zip(*samplers, strict=True) for i in pair]


def test_one_replica_draws_what_two_would(plain: RunRecord, changed: RunRecord) -> None:
    assert said(changed, "alone") == f"12 {order(2, 3, False)}"
    assert said(plain, "alone") != said(changed, "alone")


def test_the_global_order_draws_what_the_original_drew(
    plain: RunRecord, changed: RunRecord
) -> None:
    assert said(plain, "state") == said(changed, "state")


def test_layers_that_depend_on_the_batch_or_on_chance_are_neutral(
    plain: RunRecord, changed: RunRecord
) -> None:
    for name in ("dropout", "channels", "recurrent", "attention", "batch-norm"):
        assert said(plain, f"neutral {name}") == "False"
        assert said(changed, f"neutral {name}") == "True"


def test_a_sample_is_augmented_alike_in_any_process(plain: RunRecord, changed: RunRecord) -> None:
    def noise(run: RunRecord) -> list[list[float]]:
        names = [f"noise {workers} {number}" for workers in (0, 2) for number in (0, 1)]
        return [ast.literal_eval(said(run, name)) for name in names]

    assert len(set(map(tuple, noise(plain)))) == 4
    alone, again, workers, persistent = noise(changed)
    assert alone == workers
    assert again == persistent
    assert alone != again  # another pass, other noise
    assert len(set(alone)) == 6  # as have the samples


def test_neutral_augmentation_leaves_the_streams_alone(
    plain: RunRecord, changed: RunRecord
) -> None:
    assert said(plain, "moved") == "True"
    assert said(changed, "moved") == "False"
    contents = [[one.contents for one in fetches(changed, loader)] for loader in (7, 8)]
    assert contents[0] == contents[1]


def test_overfitting_draws_the_first_samples_only(plain: RunRecord, short: RunRecord) -> None:
    assert {i for one in fetches(short, 0) for i in one.samples} == {0, 1, 2}
    assert sum(len(one.samples) for one in fetches(short, 0)) == 22
    evaluated = [i for one in fetches(short, 5) for i in one.samples]
    assert evaluated == list(range(11))
    assert {i for one in fetches(plain, 0) for i in one.samples} == set(range(11))


def test_batches_are_multiplied(short: RunRecord) -> None:
    assert short.loaders[0].batch == 8
    assert [len(one.samples) for one in fetches(short, 5)] == [8, 3]
    assert said(short, "batches") == "[8, 3] 2"


def test_a_run_stops_after_the_steps_asked_for(short: RunRecord, plain: RunRecord) -> None:
    assert (short.status, short.exit_code, len(short.steps)) == ("stopped", 0, 2)
    assert "late Late" in short.stdout
    assert "neutral" not in short.stdout
    assert short.stderr == plain.stderr  # no traceback


def test_progress_is_that_of_the_record(plain: RunRecord, folder: Path) -> None:
    now = progress(folder / "out")
    assert now.steps == 5
    assert now.loss == pytest.approx(plain.steps[4 - 1].losses[-1])
    assert now.events > len(plain.events)
    assert progress(folder / "nothing").events == 0
