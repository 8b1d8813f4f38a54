"""The runtime in one process without torchrun: every helper is the identity, to the last bit."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.torch_version import TorchVersion
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

from ddpify import vendor
from runtime import ddp_metrics as metrics
from runtime import ddp_utils as ddp
from runtime import fsdp_checkpoints as stored
from runtime import fsdp_utils as shards

ROOT = Path(__file__).parents[2]
LAUNCHED = {"RANK": "2", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    # An optimizer makes torch set this one; the variable must not outlive the test.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rank 2 of 4, before the process group is there."""
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)


def random_states() -> tuple[Any, ...]:
    numpy_state = np.random.get_state(legacy=True)
    return (random.getstate(), torch.get_rng_state().tolist(), str(numpy_state))


MODEL = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
TENSOR = torch.ones(2, requires_grad=True)
VALUE = {"path": object()}
LIST = [TENSOR]
LOADER = DataLoader(LIST, 1)
FED = DataLoader(LIST, 1)  # what a Trainer is given looks dealt from then on
TABLE, RATE = {"sum": 1}, 0.1
SGD = torch.optim.SGD(MODEL.parameters(), lr=RATE)
SAME: list[Any] = [
    pytest.param(lambda: ddp.wrap_model(MODEL, sync_batchnorm=True), MODEL, id="wrap_model"),
    pytest.param(lambda: ddp.unwrap(MODEL), MODEL, id="unwrap"),
    pytest.param(lambda: ddp.broadcast(VALUE), VALUE, id="broadcast"),
    pytest.param(lambda: metrics.reduce_sum(TENSOR), TENSOR, id="reduce_sum"),
    pytest.param(lambda: metrics.reduce_mean(TENSOR), TENSOR, id="reduce_mean"),
    pytest.param(lambda: metrics.reduce_sum(1, TENSOR)[1], TENSOR, id="reduce_sum-of-two"),
    pytest.param(lambda: metrics.gather_samples(LIST), LIST, id="gather_samples"),
    pytest.param(lambda: metrics.gather_batches(LIST, [])[0], LIST, id="gather_batches"),
    pytest.param(lambda: metrics.per_rank_count(TENSOR), TENSOR, id="per_rank_count"),
    pytest.param(lambda: metrics.global_mean(TENSOR, 2), TENSOR, id="global_mean"),
    pytest.param(lambda: metrics.loss_terms(torch.nn.MSELoss(), TENSOR), 1, id="loss_terms"),
    pytest.param(lambda: metrics.own_share(TENSOR), TENSOR, id="own_share"),
    pytest.param(lambda: metrics.own_share(LIST, TENSOR, dim=1)[1], TENSOR, id="own_share-of-two"),
    pytest.param(lambda: metrics.order_share(LIST), LIST, id="order_share"),
    pytest.param(lambda: metrics.reduce_entries(TABLE), TABLE, id="reduce_entries"),
    pytest.param(lambda: metrics.global_copy(MODEL, sums=("a",)), MODEL, id="global_copy"),
    pytest.param(lambda: ddp.with_rank_streams(TABLE), TABLE, id="with_rank_streams"),
    pytest.param(lambda: ddp.restore_rank_streams(TABLE), None, id="restore_rank_streams"),
    pytest.param(lambda: ddp.batch_weight(LOADER, 0), 1, id="batch_weight"),
    pytest.param(lambda: ddp.scaled_lr(RATE), RATE, id="scaled_lr"),
    pytest.param(lambda: ddp.warm_up(SGD, 3), None, id="warm_up"),
    pytest.param(lambda: metrics.share_batches(LOADER), LOADER, id="share_batches"),
    pytest.param(lambda: metrics.share_evaluation(FED), FED, id="share_evaluation"),
    pytest.param(lambda: metrics.share_training(FED), FED, id="share_training"),
    pytest.param(lambda: ddp.distributed_sampler(range(5), True), None, id="distributed_sampler"),
    pytest.param(lambda: ddp.evaluation_sampler(range(5)), None, id="evaluation_sampler"),
    pytest.param(lambda: ddp.evaluation_share(range(5)), None, id="evaluation_share"),
    pytest.param(lambda: ddp.whole_loader(LOADER), LOADER, id="whole_loader"),
    pytest.param(lambda: shards.even_batches(LOADER, MODEL), LOADER, id="even_batches"),
    pytest.param(lambda: shards.built_on_main().__enter__(), None, id="built_on_main"),
    pytest.param(lambda: shards.class_of(MODEL), nn.Sequential, id="class_of"),
    pytest.param(lambda: shards.ready_to_shard(MODEL), None, id="ready_to_shard"),
    pytest.param(lambda: shards.unsharded(MODEL), MODEL, id="unsharded"),
    pytest.param(lambda: shards.whole_model(MODEL), MODEL, id="whole_model"),
    pytest.param(lambda: shards.whole_tensor(TENSOR), TENSOR, id="whole_tensor"),
    pytest.param(lambda: stored.save_sharded(TABLE, os.devnull), None, id="save_sharded"),
    pytest.param(lambda: stored.async_save_sharded(TABLE, os.devnull), None, id="async_save"),
    pytest.param(lambda: ddp.new_pass(LOADER), LOADER, id="new_pass"),
    pytest.param(lambda: ddp.is_distributed(), False, id="is_distributed"),
    pytest.param(lambda: ddp.is_main_process(), True, id="is_main_process"),
    pytest.param(lambda: ddp.setup_distributed(), None, id="setup_distributed"),
    pytest.param(lambda: ddp.cleanup_distributed(), None, id="cleanup_distributed"),
    pytest.param(lambda: ddp.barrier(), None, id="barrier"),
    pytest.param(lambda: ddp.fork_random_streams(), None, id="fork_random_streams"),
    pytest.param(lambda: metrics.reduce_meter(SimpleNamespace()), None, id="reduce_meter"),
    pytest.param(lambda: ddp.print_on_main(end=""), None, id="print_on_main"),
    pytest.param(lambda: ddp.same_draws().__enter__(), None, id="same_draws"),
    pytest.param(lambda: ddp.map_style(LIST), LIST, id="map_style"),
]


@pytest.mark.parametrize(("call", "result"), SAME)
def test_helpers_return_the_very_object_and_draw_nothing(
    call: Callable[[], Any], result: Any
) -> None:
    before = random_states()
    assert call() is result
    assert random_states() == before
    assert not dist.is_initialized()


@pytest.mark.parametrize(("call", "result"), SAME[:17])
def test_a_single_rank_under_torchrun_is_one_process(
    call: Callable[[], Any], result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    assert call() is result


BOUNDED = [
    pytest.param(0, 1, 1, id="int"),
    pytest.param(3, 1, 3, id="enough"),
    pytest.param(0, 1e-6, 1e-6, id="float"),
    pytest.param(torch.tensor(0), 1, torch.tensor(0).clamp(min=1), id="tensor"),
    pytest.param(torch.tensor(0), 0.5, torch.tensor(0).clamp(min=0.5), id="tensor-float"),
    pytest.param(torch.tensor(2.0), 1, torch.tensor(2.0), id="tensor-enough"),
]


@pytest.mark.parametrize(("count", "at_least", "expected"), BOUNDED)
def test_a_count_is_bounded_as_the_script_bounded_it(
    count: Any, at_least: float, expected: Any
) -> None:
    found = metrics.per_rank_count(count, at_least=at_least)
    assert type(found) is type(expected)
    assert found == expected
    assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)


def test_what_is_frozen_is_frozen_again() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    with ddp.unfrozen(model):
        assert all(parameter.requires_grad for parameter in model.parameters())
    assert [parameter.requires_grad for parameter in model.parameters()] == [
        False,
        False,
        True,
        True,
    ]


def test_a_batch_without_a_backward_has_none() -> None:
    model = nn.Linear(2, 2)
    with shards.backward_on_all(model):
        model(TENSOR.new_ones(2).float())
    assert model.weight.grad is None


def test_numbers_in_one_process() -> None:
    numbers = (ddp.get_rank(), ddp.get_local_rank(), ddp.get_world_size())
    assert numbers == (0, 0, 1)
    assert ddp.per_rank_batch_size(50) == 50
    assert ddp.per_rank_accumulation(5) == 5
    assert metrics.reduce_mean(3, 0.5) == (3, 0.5)
    assert isinstance(metrics.reduce_mean(3), int)


def train(plain: bool, file: Path) -> list[float]:
    """A script with all kinds of randomness, as written and as migrated."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(30, 4), torch.randint(0, 2, (30,)))
    sampler = None if plain else ddp.distributed_sampler(data, shuffle=True)
    size = 8 if plain else ddp.per_rank_batch_size(8)
    loader = DataLoader(data, size, shuffle=sampler is None, sampler=sampler)
    model: nn.Module = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2)
    )
    if not plain:
        model = ddp.wrap_model(model, sync_batchnorm=True)
        ddp.fork_random_streams()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for epoch in range(2):
        if not plain:
            ddp.begin_epoch(loader, epoch)
        for step, (x, y) in enumerate(loader):
            x = x + random.random() * np.random.rand()
            with ddp.gradient_sync(model, step % 2 == 1):
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
            losses.append(loss.item() if plain else metrics.reduce_mean(loss.item()))
            optimizer.step()
            optimizer.zero_grad()
    (torch.save if plain else ddp.save_on_main)(ddp.unwrap(model).state_dict(), file)
    return losses


def test_training_with_the_helpers_is_equal_to_the_last_bit(tmp_path: Path) -> None:
    outcomes = []
    for plain in (True, False):
        file = tmp_path / str(plain) / "model.pt"
        file.parent.mkdir()
        outcomes.append((train(plain, file), file.read_bytes(), random_states()))
    assert outcomes[0] == outcomes[1]


SESSION = [
    pytest.param(None, True, id="returns"),
    pytest.param(SystemExit(), True, id="sys.exit()"),
    pytest.param(SystemExit(0), True, id="sys.exit(0)"),
    pytest.param(SystemExit(1), False, id="sys.exit(1)"),
    pytest.param(SystemExit("bad"), False, id="sys.exit(message)"),
    pytest.param(ValueError("bad"), False, id="raises"),
    pytest.param(KeyboardInterrupt(), False, id="interrupted"),
]


@pytest.mark.parametrize(("error", "cleaned"), SESSION)
def test_the_session_cleans_up_only_after_success(
    error: BaseException | None, cleaned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(ddp, "setup_distributed", lambda **options: calls.append("setup"))
    monkeypatch.setattr(ddp, "cleanup_distributed", lambda: calls.append("cleanup"))
    caught = None
    try:
        with ddp.distributed_session():
            if error is not None:
                raise error
    except BaseException as seen:
        caught = seen
    assert caught is error
    assert calls == ["setup", "cleanup"] if cleaned else ["setup"]


@pytest.mark.usefixtures("launched")
def test_before_setup_the_launcher_says_who_this_is() -> None:
    numbers = (ddp.get_rank(), ddp.get_local_rank(), ddp.get_world_size())
    assert numbers == (2, 1, 4)
    assert not ddp.is_main_process()
    sampler = ddp.evaluation_sampler(range(11))
    assert sampler is not None
    assert (list(sampler), len(sampler)) == ([2, 6, 10], 3)
    assert ddp.evaluation_share(range(11)) == range(2, 11, 4)


SIZES = [
    pytest.param(48, "12", id="divides"),
    pytest.param(50, "batch size 50 cannot be split over 4 ranks: use 48 or 52", id="between"),
    pytest.param(3, "batch size 3 cannot be split over 4 ranks: use 4", id="too-small"),
]


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize(("size", "expected"), SIZES)
def test_batch_sizes(size: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    try:
        seen = str(ddp.per_rank_batch_size(size))
    except SystemExit as stop:
        seen = str(stop)
    assert seen == expected


@pytest.mark.usefixtures("launched")
def test_accumulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    assert ddp.per_rank_accumulation(8) == 2
    with pytest.raises(SystemExit, match="accumulation 6 cannot be split over 4 ranks: use 4 or 8"):
        ddp.per_rank_accumulation(6)


@pytest.mark.usefixtures("launched")
def test_other_ranks_refuse_a_batch_size_without_a_word() -> None:
    with pytest.raises(SystemExit) as stop:
        ddp.per_rank_batch_size(50)
    assert stop.value.code == 1


def first() -> None:
    with ddp.main_process_first():
        raise AssertionError("the body must not run")


METER = SimpleNamespace(sum=1.0, count=2)
COLLECTIVES: list[Any] = [
    pytest.param(lambda: ddp.barrier(), id="barrier"),
    pytest.param(lambda: ddp.broadcast(1), id="broadcast"),
    pytest.param(lambda: metrics.reduce_sum(1), id="reduce_sum"),
    pytest.param(lambda: metrics.reduce_mean(1), id="reduce_mean"),
    pytest.param(lambda: metrics.reduce_entries({}), id="reduce_entries"),
    pytest.param(lambda: metrics.reduce_meter(METER), id="reduce_meter"),
    pytest.param(lambda: metrics.global_copy(METER, sums=("sum",)), id="global_copy"),
    pytest.param(lambda: metrics.gather_samples([]), id="gather_samples"),
    pytest.param(lambda: metrics.gather_batches([]), id="gather_batches"),
    pytest.param(lambda: metrics.per_rank_count(1), id="per_rank_count"),
    pytest.param(lambda: metrics.global_mean(TENSOR, 1), id="global_mean"),
    pytest.param(lambda: ddp.wrap_model(MODEL), id="wrap_model"),
    pytest.param(lambda: ddp.distributed_sampler(range(4), True), id="distributed_sampler"),
    pytest.param(lambda: ddp.save_on_main({}, "never.pt"), id="save_on_main"),
    pytest.param(first, id="main_process_first"),
]


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize("call", COLLECTIVES)
def test_collectives_without_a_group_are_refused_not_skipped(call: Callable[[], Any]) -> None:
    with pytest.raises((RuntimeError, ValueError), match="process group has not been initialized"):
        call()


GPUS = [
    pytest.param(0, 4, "gloo", None, id="no-gpu"),
    pytest.param(4, 4, "cpu:gloo,cuda:nccl", None, id="one-each"),
    pytest.param(8, 4, "cpu:gloo,cuda:nccl", None, id="spare"),
    pytest.param(1, 4, "gloo", "4 ranks share 1 GPU", id="shared"),
]


@pytest.mark.parametrize(("gpus", "ranks", "backend", "warning"), GPUS)
def test_backend(
    gpus: int, ranks: int, backend: str, warning: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    if warning is None:
        assert ddp._backend() == backend
    else:
        with pytest.warns(UserWarning, match=warning):
            assert ddp._backend() == backend


DEVICES = [
    pytest.param(False, 0, None, "cpu", id="no-gpu"),
    pytest.param(True, 4, "3", "cuda:3", id="own-gpu"),
    pytest.param(True, 2, "3", "cuda:1", id="shared-gpu"),
    pytest.param(True, 4, None, "cuda:2", id="one-process-current-device"),
]


@pytest.mark.parametrize(("cuda", "gpus", "local_rank", "device"), DEVICES)
def test_local_device(
    cuda: bool, gpus: int, local_rank: str | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    if local_rank is not None:
        for name, value in {**LAUNCHED, "LOCAL_RANK": local_rank}.items():
            monkeypatch.setenv(name, value)
    assert str(ddp.local_device()) == device


def test_unwrap_looks_through_wrappers_but_keeps_compiled_keys() -> None:
    wrapper = nn.DataParallel(MODEL)
    compiled, compiled_wrapper = SimpleNamespace(_orig_mod=MODEL), SimpleNamespace(
        _orig_mod=wrapper
    )
    assert ddp.unwrap(wrapper) is MODEL
    assert ddp.unwrap(compiled_wrapper) is MODEL
    assert ddp.unwrap(compiled) is compiled


def test_the_prefix_of_a_wrapper_is_stripped_with_its_versions() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    saved = nn.DataParallel(model).state_dict()
    stripped = ddp.without_module_prefix(saved)
    assert list(stripped) == list(model.state_dict())
    assert stripped._metadata == model.state_dict()._metadata  # type: ignore[attr-defined]
    assert model.load_state_dict(stripped).missing_keys == []


def test_the_prefix_of_a_part_with_a_wrapper_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    parallel = nn.Sequential(nn.DataParallel(model[0]), model[1])
    stripped = ddp.without_module_prefix(parallel.state_dict(), "0")
    assert sorted(stripped) == sorted(model.state_dict())
    assert ddp.without_module_prefix(dict(stripped), "0") == stripped
    assert ddp.without_module_prefix({"0.module.a": 1, "0.b": 2}, "0") == {
        "0.module.a": 1,
        "0.b": 2,
    }


KEPT = [
    pytest.param({"weight": 1}, id="no-prefix"),
    pytest.param({"module.weight": 1, "head": 2}, id="a-submodule-of-that-name"),
    pytest.param({}, id="empty"),
    pytest.param({0: 1}, id="keys-that-are-not-text"),
]


@pytest.mark.parametrize("state", KEPT)
def test_nothing_to_strip_is_the_same_object(state: dict[str, Any]) -> None:
    assert ddp.without_module_prefix(state) is state


class Told(SequentialSampler):
    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def loaders() -> Iterator[Any]:
    data, told = TensorDataset(torch.arange(4)), Told(range(4))
    yield pytest.param(DataLoader(data, sampler=told), told, id="sampler")
    told = Told(range(4))
    batches = torch.utils.data.BatchSampler(told, 2, False)
    yield pytest.param(DataLoader(data, batch_sampler=batches), told, id="batch-sampler")


@pytest.mark.parametrize(("loader", "sampler"), list(loaders()))
def test_begin_epoch_reaches_the_sampler(loader: Any, sampler: Told) -> None:
    ddp.begin_epoch(loader, 5)
    assert sampler.epoch == 5


UNTOLD = [
    pytest.param(DataLoader(TensorDataset(torch.arange(4)), shuffle=True), id="random-sampler"),
    pytest.param([1, 2], id="a-list-of-batches"),
    pytest.param(DataLoader([1, 2], batch_size=None), id="no-batches"),
]


@pytest.mark.parametrize("loader", UNTOLD)
def test_begin_epoch_leaves_others_alone(loader: Any) -> None:
    ddp.begin_epoch(loader, 5)


def test_save_follows_links_and_replaces_whole_files_only(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "epoch1.pt", tmp_path / "last.pt"
    link.symlink_to(target)
    ddp.save_on_main({"epoch": 1}, str(link))
    assert link.is_symlink()
    good = target.read_bytes()
    with pytest.raises(AttributeError, match="local object"):
        ddp.save_on_main({"hook": lambda: None}, link)
    assert target.read_bytes() == good
    assert [path.name for path in target.parent.iterdir()] == ["epoch1.pt"]


NAMES = ["model.pt", "model", "best.epoch3.pth"]


@pytest.mark.parametrize("name", NAMES)
def test_saved_bytes_are_those_of_torch_save(name: str, tmp_path: Path) -> None:
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
    torch.save(MODEL.state_dict(), tmp_path / "theirs" / name)
    ddp.save_on_main(MODEL.state_dict(), tmp_path / "ours" / name)
    assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


def test_save_to_a_buffer_a_file_and_a_device(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    ddp.save_on_main({"a": 1}, buffer, _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=True) == {"a": 1}
    with (tmp_path / "model.pt").open("wb") as file:
        ddp.save_on_main({"a": 1}, file)  # other ranks read it once this returns, before the close
        assert torch.load(tmp_path / "model.pt", weights_only=True) == {"a": 1}
    ddp.save_on_main({"a": 1}, os.devnull)
    assert not Path(os.devnull).is_file()


def test_a_null_writer_takes_everything_and_gives_nothing() -> None:
    writer = ddp.NullWriter()
    assert writer.add_scalar("loss", 1.0, global_step=3) is writer
    assert writer.log.artifacts["x"].upload() is writer
    writer.config["lr"] = 0.1
    writer.step = 3
    with writer as file:
        assert file is writer
        assert file.write("text") == 0
        print("text", file=file, flush=True)
    assert list(writer) == []
    assert writer
    assert np.asarray([writer], dtype=object)[0] is writer


def test_a_null_writer_swallows_no_exception() -> None:
    with pytest.raises(ValueError, match="bad"), ddp.NullWriter():
        raise ValueError("bad")


def test_a_copy_alone_runs_in_an_isolated_interpreter(tmp_path: Path) -> None:
    (tmp_path / "ddp_utils.py").write_text(vendor.core_text())
    (tmp_path / "ddp_metrics.py").write_text(vendor.metrics_text())
    script = tmp_path / "main.py"
    script.write_text(
        "import sys\nfrom ddp_metrics import reduce_sum\n"
        "from ddp_utils import distributed_session\n"
        "with distributed_session():\n    print(reduce_sum(2))\n"
        "assert not {'ddpify', 'runtime'} & sys.modules.keys()\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, cwd=tmp_path
    )
    assert (run.stdout, run.stderr) == ("2\n", "")


class Given(nn.Module):
    def __init__(self, kind: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> Any:
        return self.kind(x)


@dataclass
class Output:
    logits: torch.Tensor


@pytest.mark.parametrize("kind", [Output, lambda x: (x, [Output(x)])], ids=["alone", "nested"])
def test_data_classes_that_older_torch_does_not_look_into_are_refused(
    kind: Callable[[torch.Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(Given(kind))
    shards.ready_to_shard(model)
    model(TENSOR)
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.11.0+cu130"))
    shards.ready_to_shard(model)
    with pytest.raises(TypeError, match=r"Given returns a data class, .* torch 2\.11\.0\+cu130"):
        model(TENSOR)


def test_other_outputs_are_as_good_with_older_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.11.0+cu130"))
    model = nn.Sequential(Given(lambda x: {"logits": (x, 1)}))
    shards.ready_to_shard(model)
    assert model(TENSOR)["logits"][0] is TENSOR
