"""One training script, run as one process (``python``) or as several ranks (``torchrun``).

Every rank must call what is marked *collective*, in the same order: not only the main process.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import logging
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Sampler

M = TypeVar("M", bound=nn.Module)
_sampler_number = itertools.count()
_begun = list[int]()  # the global batch size of the loader whose epoch began last
_before_cleanup = contextlib.ExitStack()


# ---- Processes
@contextlib.contextmanager
def distributed_session(**options: Any) -> Iterator[None]:
    """``with distributed_session(): main()`` sets up, runs, and cleans up (*collective*)."""
    setup_distributed(**options)
    try:
        yield  # where this raises, the job must end at once: no clean-up, no waiting for others
    except SystemExit as stop:
        if not stop.code:  # sys.exit() is a normal end
            cleanup_distributed()
        raise
    cleanup_distributed()


def setup_distributed(**options: Any) -> None:
    """Join torchrun's group; on ranks > 0 silence warnings and logs below errors (*collective*)."""
    if not _launched() or dist.is_initialized():
        return
    if not is_main_process():
        logging.disable(logging.WARNING)
        warnings.showwarning = lambda *args, **kwargs: None  # filters make errors on all ranks
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(**{"backend": _backend(), **options})  # device_id: pytorch#153960 hangs
    share_random_streams()


def _launched() -> bool:
    return "RANK" in os.environ and "LOCAL_RANK" in os.environ and "WORLD_SIZE" in os.environ


def _backend() -> str:
    """Gloo for the CPU, and NCCL for GPUs where each local rank has its own."""
    gpus, ranks = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if 0 < gpus < ranks and is_main_process():
        warnings.warn(f"{ranks} ranks share {gpus} GPU(s): --nproc_per_node={gpus}", stacklevel=2)
    return "cpu:gloo,cuda:nccl" if ranks <= gpus and dist.is_nccl_available() else "gloo"


def share_random_streams() -> list[tuple[Any, Any]]:
    """Give every rank rank 0's: what ranks make from here on they make alike (*collective*)."""
    for restore, state in (own := [(restore, read()) for read, restore in _streams()]):
        restore(broadcast(state))
    return own


def _streams() -> Iterator[tuple[Any, Any]]:
    yield random.getstate, random.setstate
    yield torch.get_rng_state, torch.set_rng_state
    if numpy := sys.modules.get("numpy"):
        yield numpy.random.get_state, numpy.random.set_state
    if torch.cuda.is_available():
        yield torch.cuda.get_rng_state, torch.cuda.set_rng_state


def cleanup_distributed() -> None:
    """Leave the process group after a run that succeeded (*collective*)."""
    if dist.is_initialized():
        _before_cleanup.close()
        gc.collect()  # threads of Gloo must not outlive Python: good runs aborted at their end
        dist.destroy_process_group()


def is_distributed() -> bool:
    """Whether there is a process group: under torchrun, between setup and cleanup."""
    return dist.is_initialized()


def get_rank() -> int:
    """This process's number, 0 in one process."""
    return dist.get_rank() if dist.is_initialized() else int(_launched() and os.environ["RANK"])


def get_world_size() -> int:
    """The number of ranks, 1 in one process."""
    ranks = int(os.environ["WORLD_SIZE"]) if _launched() else 1
    return dist.get_world_size() if dist.is_initialized() else ranks


def get_local_rank() -> int:
    """This process's number on its node, 0 in one process."""
    return int(os.environ["LOCAL_RANK"]) if _launched() else 0


def is_main_process() -> bool:
    """Whether this is rank 0, the one that prints and writes files."""
    return get_rank() == 0


def print_on_main(*values: Any, **options: Any) -> None:
    """``print`` on rank 0 what every rank computed, as it changed something (``queue.pop()``)."""
    if is_main_process():
        print(*values, **options)


def local_device() -> torch.device:
    """This rank's device: ``cuda:i`` where there is a GPU, else ``cpu``."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    own = get_local_rank() % torch.cuda.device_count()
    return torch.device("cuda", own if _launched() else torch.cuda.current_device())


def barrier() -> None:
    """Wait until every rank is here (*collective*)."""
    gather_objects(None)


def broadcast(value: Any) -> Any:
    """Rank 0's ``value``, a picklable object, on every rank (*collective*)."""
    return gather_objects(value if is_main_process() else None)[0]


def gather_objects(value: Any) -> list[Any]:
    """The ``value`` of each rank, a picklable object, on every rank (*collective*)."""
    if get_world_size() == 1:
        return [value]
    packed = io.BytesIO()
    torch.save(value, packed)
    boxes = [b""] * get_world_size()
    dist.all_gather_object(boxes, packed.getvalue())
    return [torch.load(io.BytesIO(b), map_location=_own_gpu, weights_only=False) for b in boxes]


def _own_gpu(storage: Any, location: str) -> Any:
    return storage.cuda() if location.startswith("cuda") else storage


@contextlib.contextmanager
def main_process_first() -> Iterator[None]:
    """Let rank 0 go first, then the first rank of each other node, then the rest (*collective*)."""
    turn = 0 if is_main_process() else 1 if get_local_rank() == 0 else 2
    for _ in range(turn):
        _agree(True)
    try:
        yield
    except BaseException:
        if turn < 2:
            _agree(False)
        raise
    for _ in range(turn, 2):
        _agree(True)


def _agree(succeeded: bool) -> None:
    """Wait for the others, and raise where one of them failed."""
    if not all(gather_objects(succeeded)) and succeeded:
        raise RuntimeError("another rank failed where this one waited: its traceback says why")


# ---- Data
def per_rank_batch_size(batch_size: int) -> int:
    """This rank's share of the global ``batch_size``; where it does not divide, the job ends."""
    return _share("batch size", batch_size)


def per_rank_accumulation(steps: int) -> int:
    """How many of ``steps`` batches of one a rank takes before an optimizer step; as above."""
    return _share("accumulation", steps)


def _share(what: str, number: int) -> int:
    ranks = get_world_size()
    if number % ranks:
        numbers = f"{low} or {low + ranks}" if (low := number - number % ranks) else f"{ranks}"
        sentence = f"{what} {number} cannot be split over {ranks} ranks: use {numbers}"
        raise SystemExit(sentence if is_main_process() else 1)  # one line, no tracebacks
    return number // ranks


def map_style(stream: Any) -> Any:
    """A finite ``stream`` as a list, for a sampler; itself in one process (*collective*).

    It has to give the same samples in the same order on each rank and in each pass.
    """
    if get_world_size() == 1:
        return stream
    with main_process_first():  # it may fetch them
        return list(stream)


def distributed_sampler(
    dataset: Any, shuffle: bool, drop_last: bool = False, batch_size: int = 0
) -> Any:
    """The training loader's sampler, None in one process; see ``begin_epoch`` (*collective*).

    With the global ``batch_size`` a short last batch has no sample twice, if each rank gets two:
    see ``batch_weight``.
    """
    if (ranks := get_world_size()) == 1:
        return None
    # Rank 0's seed, another for each sampler (loaders in a `zip`); 31 bits leave room for epochs.
    seed = torch.initial_seed() % 2**31 + 2**20 * next(_sampler_number)
    length, seed = broadcast((len(dataset), seed))
    if len(dataset) != length:
        unequal = f"rank {get_rank()} has {len(dataset)} samples but rank 0 has {length}"
        raise ValueError(f"{unequal}: sort the files, use one seed on all ranks")
    # Batch norm, squeeze() and the like take a part of one sample for something else.
    if batch_size and not drop_last and length % ranks and length % batch_size >= 2 * ranks:
        return _Dealt(dataset, shuffle=shuffle, seed=seed)
    if length % ranks and not drop_last and is_main_process():
        repeated = f"the last batch of each epoch repeats {-length % ranks} of them"
        warnings.warn(f"{length} samples do not divide by {ranks} ranks: {repeated}", stacklevel=2)
    return DistributedSampler(dataset, shuffle=shuffle, drop_last=drop_last, seed=seed)


class _Dealt(DistributedSampler[Any]):
    """Every N-th sample for each of N ranks: of a short last batch some get one more."""

    def __iter__(self) -> Iterator[Any]:
        whole: Any = DistributedSampler(self.dataset, 1, 0, self.shuffle, self.seed)
        whole.set_epoch(self.epoch)
        return itertools.islice(whole, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        return len(range(self.rank, len(self.dataset), self.num_replicas))  # type: ignore[arg-type]


def batch_weight(loader: DataLoader[Any], number: int) -> float:
    """What a mean over this rank's part of a batch counts: N * n / s for n of s samples.

    Ranks' means are averaged, and of the last batch their parts may differ in size.
    """
    sampler, size = loader.sampler, loader.batch_size or 1
    if not isinstance(sampler, _Dealt) or number < len(loader) - 1:
        return 1
    ranks, samples = get_world_size(), len(loader.dataset)  # type: ignore[arg-type]
    return ranks * (len(sampler) % size or size) / (samples % (size * ranks))


def begin_epoch(loader: DataLoader[Any], epoch: int) -> None:
    """Tell the sampler the epoch, by which it shuffles; ranks > 0 begin new random streams."""
    for owner in (loader, getattr(loader, "batch_sampler", None)):
        sampler: Any = getattr(owner, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
            _begun[:] = [(loader.batch_size or 1) * get_world_size()]
            # A resumed run draws as an unbroken one: its checkpoint holds rank 0's streams only.
            fork_random_streams(getattr(sampler, "seed", 0) + epoch * get_world_size())


def new_pass(loader: Any) -> Any:
    """``loader`` itself, which shuffles anew: it is begun again before the epoch is over."""
    sampler: Any = getattr(loader, "sampler", None)
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(sampler.epoch + 1_000_003)  # generators take 32 bits of a seed
    return loader


def fork_random_streams(seed: int | None = None) -> None:
    """Let ranks > 0 draw apart from rank 0, once all have made the same data sets and model."""
    if is_main_process():
        return
    seed = ((torch.initial_seed() if seed is None else seed) + get_rank()) % 2**32
    random.seed(seed)
    torch.manual_seed(seed)  # of CUDA and MPS too
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


@contextlib.contextmanager
def same_draws() -> Iterator[None]:
    """Let all ranks draw as rank 0 does: data that they index as one (*collective*)."""
    own = share_random_streams() if get_world_size() > 1 else []
    yield
    for restore, state in own if not is_main_process() else ():
        restore(state)


def whole_loader(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A loader without a sampler of its own as one process has it: all samples, none repeated."""
    ranks, sampler = get_world_size(), loader.sampler
    if ranks == 1:
        return loader
    kept = """num_workers collate_fn pin_memory drop_last timeout worker_init_fn generator
        multiprocessing_context prefetch_factor persistent_workers""".split()
    size, shuffle = loader.batch_size or 1, isinstance(sampler, RandomSampler)
    if isinstance(sampler, DistributedSampler):  # what distributed_sampler gave
        size, shuffle = size * ranks, sampler.shuffle
    return DataLoader(loader.dataset, size, shuffle, **{n: getattr(loader, n) for n in kept})


def evaluation_share(dataset: Sized) -> range | None:
    """This rank's samples for an evaluation without collectives; None in one process."""
    ranks = get_world_size()
    return range(get_rank(), len(dataset), ranks) if ranks > 1 else None


def evaluation_sampler(dataset: Sized, batch_size: int | None = None) -> Sampler[int] | None:
    """``evaluation_share`` or, given the loader's ``batch_size``, every N-th whole batch."""
    return _Share(len(dataset), batch_size) if get_world_size() > 1 else None


class _Share(Sampler[int]):
    """Batches r, r + N, r + 2N ... of rank r; samples where no batch size is given."""

    def __init__(self, length: int, batch_size: int | None) -> None:
        rank, ranks, size = get_rank(), get_world_size(), batch_size or 1
        self.indices = [i for i in range(length) if i // size % ranks == rank]
        self.length = length if batch_size else len(self.indices)  # sums are divided by len(loader)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.length


# ---- Model
def wrap_model(model: M, sync_batchnorm: bool = False, **ddp_kwargs: Any) -> M:
    """``model`` in DistributedDataParallel, after ``.to(device)`` and freezing (*collective*)."""
    if get_world_size() == 1:
        return model
    if "broadcast_buffers" in ddp_kwargs and torch.__version__ >= "2.13":  # which renamed it
        ddp_kwargs["forward_sync_buffers"] = ddp_kwargs.pop("broadcast_buffers")
    devices = {parameter.device for parameter in model.parameters()}
    if all(device.type == "cuda" for device in devices):
        if sync_batchnorm:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        if len(devices) == 1:
            ddp_kwargs.setdefault("device_ids", [devices.pop().index])
    for buffer in model.buffers():  # DDP fails to copy a lone one of other strides onto itself
        buffer.data = buffer.detach().clone(memory_format=torch.contiguous_format)
    if any(parameter.requires_grad for parameter in model.parameters()):
        return DistributedDataParallel(model, **ddp_kwargs)  # type: ignore[return-value]
    for tensor in (*model.parameters(), *model.buffers()):  # frozen whole: nothing to average
        dist.broadcast(tensor.detach(), src=0)
    return model


@contextlib.contextmanager
def unfrozen(model: nn.Module) -> Iterator[None]:
    """Around the wrapping of a model whose parts are frozen, or trained, as training goes on.

    DistributedDataParallel averages, as long as it lives, what is trained when it is made; with
    ``find_unused_parameters=True`` it does not wait for what is frozen.
    """
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    for parameter, _ in wanted:
        parameter.requires_grad_(parameter.is_floating_point())
    yield
    for parameter, trained in wanted:
        parameter.requires_grad_(trained)


def unwrap(model: M) -> M:
    """The module inside DistributedDataParallel or DataParallel, else ``model`` itself."""
    inner: Any = getattr(model, "_orig_mod", model)
    return inner.module if isinstance(inner, (DistributedDataParallel, DataParallel)) else model


def sync_buffers(model: nn.Module) -> None:
    """Give every rank rank 0's buffers, in place: batch-norm statistics differ (*collective*)."""
    for buffer in unwrap(model).buffers() if get_world_size() > 1 else ():
        dist.broadcast(buffer.detach(), src=0)


def without_module_prefix(state_dict: dict[str, Any], *parts: str) -> dict[str, Any]:
    """``state_dict`` without ``module.``, of a wrapper around the model or ``parts`` of it."""
    if all(str(key).startswith("module.") for key in state_dict):
        nn.modules.utils.consume_prefix_in_state_dict_if_present(state_dict, "module.")
    for start in (f"{part}." for part in parts):
        keys = [key for key in state_dict if str(key).startswith(start)]
        for key in keys if all(key.startswith(f"{start}module.") for key in keys) else ():
            state_dict[start + key.removeprefix(f"{start}module.")] = state_dict.pop(key)
    return state_dict


def gradient_sync(model: nn.Module, sync: bool) -> contextlib.AbstractContextManager[None]:
    """Around forward *and* backward of a micro-batch: average the gradients only if ``sync``."""
    inner: Any = getattr(model, "_orig_mod", model)
    getattr(inner, "set_requires_gradient_sync", bool)(sync)  # of fully_shard: until set again
    skip = isinstance(inner, DistributedDataParallel) and not sync
    return inner.no_sync() if skip else contextlib.nullcontext()


@torch.no_grad()
def average_gradients(model: nn.Module) -> None:
    """Average what backwards added that did not average it themselves (*collective*)."""
    ranks = get_world_size()
    parameters = list(model.parameters()) if ranks > 1 else []
    own = [parameter.grad is not None for parameter in parameters]
    alike: dict[Any, list[torch.Tensor]] = {}
    for parameter, *has in zip(parameters, *gather_objects(own), strict=True):
        if any(has):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            alike.setdefault((parameter.dtype, parameter.device), []).append(parameter.grad)
    for gradients in alike.values():  # one message for all of them
        flat = torch.cat([gradient.flatten() for gradient in gradients]) / ranks
        dist.all_reduce(flat)
        for gradient in gradients:  # of any strides
            gradient.copy_(flat[: gradient.numel()].view_as(gradient))
            flat = flat[gradient.numel() :]


# ---- Learning rates
def scaled_lr(lr: Any, how: str = "linear") -> Any:
    """The rate for a batch that is N times as large: ``lr`` times N, or its root ("sqrt")."""
    times = get_world_size() ** (1 if how == "linear" else 0.5)
    if isinstance(lr, list):  # one for each group of parameters
        return [scaled_lr(rate, how) for rate in lr]
    return lr if times == 1 else lr * times


def warm_up(optimizer: torch.optim.Optimizer, steps: int, how: str = "linear") -> None:
    """Let scaled rates grow from the script's own in the first ``steps``, whoever sets them."""
    times = scaled_lr(1.0, how)
    held: list[Any] = []

    def before(*_: Any) -> None:
        share = min(1.0, (optimizer.param_groups[0].get("warmed_up", 0) + 1) / steps)
        held[:] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * (1 + share * (times - 1)) / times

    def after(*_: Any) -> None:
        for group, rate in zip(optimizer.param_groups, held, strict=True):
            group["lr"] = rate
        first = optimizer.param_groups[0]
        first["warmed_up"] = first.get("warmed_up", 0) + 1  # goes into checkpoints

    if times != 1:
        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)


# ---- Files
def save_on_main(obj: object, path: Any, **kwargs: Any) -> None:
    """``torch.save`` on rank 0; on return every rank finds the file, whole (*collective*)."""
    try:
        if is_main_process():
            _save(obj, path, **kwargs)
    except BaseException:
        _agree(False)
        raise
    _agree(True)


def _save(obj: object, path: Any, **kwargs: Any) -> None:
    """``torch.save``, but a run that is killed meanwhile leaves the old file as it was."""
    if not isinstance(path, (str, os.PathLike)) or Path(path).is_char_device():
        torch.save(obj, path, **kwargs)  # an open file, a buffer, or /dev/null
        getattr(path, "flush", lambda: None)()
        return
    target = Path(path).resolve()  # a link stays a link
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        partial = Path(folder, Path(path).name)  # the archive contains the name
        torch.save(obj, partial, **kwargs)
        os.replace(partial, target)


def with_rank_streams(state: dict[str, Any]) -> dict[str, Any]:
    """``state`` and, of several ranks, what each of them draws next (*collective*)."""
    if get_world_size() == 1:
        return state
    own = [_plain(read()) for read, _ in _streams()]
    return {**state, "rank_streams": gather_objects(own), "global_batch_size": _begun[:]}


def _plain(stream: Any) -> Any:
    """What ``torch.load(weights_only=True)`` reads: it takes no array of numpy's."""
    if not isinstance(stream, tuple):
        return stream
    return tuple(part.tolist() if hasattr(part, "tolist") else part for part in stream)


def restore_rank_streams(state: dict[str, Any]) -> None:
    """Where rank 0's streams were restored: each rank's own, if ``state`` is of as many ranks."""
    kept, ranks = state.get("rank_streams", [None]), get_world_size()
    if len(kept) != ranks and is_main_process():
        written = f"the checkpoint was written by {len(kept)} ranks and is read by {ranks}"
        warnings.warn(f"{written}: the rest of the epoch will be another one", stacklevel=2)
    if _begun and state.get("global_batch_size", _begun) != _begun and is_main_process():
        written = f"the checkpoint's batch size is {state['global_batch_size']}, now it is {_begun}"
        warnings.warn(f"{written}: batches that were seen are other ones now", stacklevel=2)
    if len(kept) != ranks:
        fork_random_streams()
    elif ranks > 1:
        for (_, restore), stream in zip(_streams(), kept[get_rank()], strict=True):
            restore(stream)


class NullWriter:
    """A writer, file or logger of ranks that must not write: true as the real one, but silent."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy, pickle and numpy ask for these
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    __enter__ = __getitem__ = __setitem__ = __call__

    def __exit__(self, *exception: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def write(self, *args: Any) -> int:
        return 0


# ---- Names of earlier versions
set_epoch = begin_epoch
