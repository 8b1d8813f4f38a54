r"""Let one training script run unchanged as one process or as many ranks under torchrun.

    python main.py                                        # one process: every helper steps aside
    torchrun --standalone --nproc_per_node=4 main.py      # one node, one rank per GPU
    torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d \
        --rdzv_endpoint=$HEAD_NODE:29500 main.py          # several nodes: this line on each of them

Started by plain ``python`` each helper returns what it was given: no process group, no random
number drawn, results equal to the last bit. Under torchrun every rank must call the helpers
marked *collective*, in the same order: never put one under ``if is_main_process():``.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
import os
import random
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DistributedSampler, Sampler

M = TypeVar("M", bound=nn.Module)
T = TypeVar("T")


# ---- Processes and devices
@contextlib.contextmanager
def distributed_session(
    backend: str | None = None, timeout: timedelta | None = None
) -> Iterator[None]:
    """``with distributed_session(): main()`` sets up, runs, and cleans up (*collective*).

    Not in a ``finally``: a rank that raises must end the job with its traceback at once, not
    wait for peers that sit in a collective.
    """
    setup_distributed(backend, timeout)
    try:
        yield
    except SystemExit as stop:
        if not stop.code:  # sys.exit() is a normal end
            cleanup_distributed()
        raise
    cleanup_distributed()


def setup_distributed(backend: str | None = None, timeout: timedelta | None = None) -> None:
    """Join torchrun's process group; do nothing without torchrun (*collective*).

    Binds this rank to its GPU and gives all ranks rank 0's random state, so that a script that
    never seeds agrees with itself. NCCL where each local rank has its own GPU, else Gloo.
    """
    if not _launched() or is_distributed():
        return
    if not is_main_process():  # what every rank says is shown once, by rank 0
        logging.disable(logging.WARNING)
        # Only the display: a filter that makes a warning an error must act on every rank.
        warnings.showwarning = lambda *args, **kwargs: None
    if torch.cuda.is_available():
        torch.cuda.set_device(local_device())
    # No device_id: with it NCCL collectives hang at random (pytorch issue 153960).
    dist.init_process_group(backend or _choose_backend(), timeout=timeout)
    if get_world_size() > 1:
        _share_random_state()


def cleanup_distributed() -> None:
    """Leave the process group after a run that succeeded (*collective*)."""
    if is_distributed():
        # Gloo's threads must not outlive Python: without this line 8 of 60 good runs aborted at
        # their end ("terminate called without an active exception"), with it none of 80.
        gc.collect()
        dist.destroy_process_group()


def is_distributed() -> bool:
    """Whether there is a process group: under torchrun, between setup and cleanup."""
    return dist.is_available() and dist.is_initialized()


def get_rank() -> int:
    """This process's number, 0 in one process; known before setup and after cleanup too."""
    return dist.get_rank() if is_distributed() else _torchrun("RANK", 0)


def get_world_size() -> int:
    """The number of ranks, 1 in one process."""
    return dist.get_world_size() if is_distributed() else _torchrun("WORLD_SIZE", 1)


def get_local_rank() -> int:
    """This process's number on its node, 0 in one process."""
    return _torchrun("LOCAL_RANK", 0)


def is_main_process() -> bool:
    """Whether this is rank 0, the one that prints and writes files."""
    return get_rank() == 0


def local_device() -> torch.device:
    """This rank's device: ``cuda:i`` where there is a GPU, else ``cpu``."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    own = get_local_rank() % torch.cuda.device_count()
    return torch.device("cuda", own if _launched() else torch.cuda.current_device())


def barrier() -> None:
    """Wait until every rank is here (*collective*)."""
    if _together():
        nccl = dist.get_backend() == "nccl"
        dist.barrier(device_ids=[torch.cuda.current_device()] if nccl else None)


def broadcast(value: T) -> T:
    """Rank 0's ``value``, a picklable object, on every rank (*collective*).

    CUDA tensors in it (also in tuples, lists and dicts) arrive on the rank's own device.
    """
    box = [value]
    if _together():
        dist.broadcast_object_list(box, src=0)
    return value if is_main_process() else _mapped(box[0], _relocated)


def _relocated(value: Any) -> Any:
    """A CUDA tensor of rank 0's device, on this rank's."""
    cuda = isinstance(value, torch.Tensor) and value.is_cuda
    return value.to(local_device()) if cuda else value


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` made to what its tuples, lists and dicts hold."""
    if type(value) in (tuple, list):
        return type(value)(_mapped(part, change) for part in value)
    if type(value) is dict:
        return {key: _mapped(part, change) for key, part in value.items()}
    return change(value)


@contextlib.contextmanager
def main_process_first() -> Iterator[None]:
    """Run the body on rank 0, then on the first rank of other nodes, then elsewhere (*collective*).

    For downloads and caches, whether nodes share the disk or not. Where the body raises, the
    ranks that wait for it raise too.
    """
    turns = 2 if _together() else 0
    mine = 0 if is_main_process() else 1 if get_local_rank() == 0 else 2
    for _ in range(mine):
        _agree(True)
    try:
        yield
    except BaseException:
        if mine < turns:
            _agree(False)
        raise
    for _ in range(mine, turns):
        _agree(True)


# ---- Data
def per_rank_batch_size(batch_size: int) -> int:
    """This rank's share of the global ``batch_size``.

    Where it does not divide, the job ends with one line from rank 0, without tracebacks.
    """
    ranks = get_world_size()
    below = batch_size - batch_size % ranks
    if below != batch_size:
        sizes = f"{below} or {below + ranks}" if below else f"{ranks}"
        sentence = f"batch size {batch_size} cannot be split over {ranks} ranks: use {sizes}"
        raise SystemExit(sentence if is_main_process() else 1)
    return batch_size // ranks


def distributed_sampler(
    dataset: Any, shuffle: bool, drop_last: bool = False
) -> DistributedSampler[Any] | None:
    """The sampler for training, None in one process (*collective*).

    ``DataLoader(dataset, shuffle=sampler is None, sampler=sampler, ...)``, with ``shuffle=False``
    where the script did not shuffle; then ``set_epoch(loader, epoch)`` before each epoch.
    """
    if not _together():
        return None
    # Rank 0's seed: the script may seed each rank differently. 31 bits leave room for the epoch.
    length, seed = broadcast((len(dataset), torch.initial_seed() % 2**31))
    if len(dataset) != length:
        raise ValueError(
            f"rank {get_rank()} has {len(dataset)} samples but rank 0 has {length}: "
            "build the same data set on every rank (sorted files, equal seeds)"
        )
    repeated = -length % get_world_size()
    if repeated and not drop_last and is_main_process():
        warnings.warn(
            f"{length} samples do not divide by {get_world_size()} ranks: the last batch of each "
            f"epoch repeats {repeated} of them",
            stacklevel=2,
        )
    return DistributedSampler(dataset, shuffle=shuffle, drop_last=drop_last, seed=seed)


def evaluation_sampler(dataset: Any, batch_size: int | None = None) -> Sampler[int] | None:
    """This rank's share of ``dataset`` without repeats, None in one process.

    Every N-th sample or, with the loader's ``batch_size``, every N-th batch as one process has it:
    for what depends on which samples share a batch. ``len(loader)`` is then that of one process.
    Shares may differ in length: in the loop call ``unwrap(model)`` and no collective, reduce after.
    """
    if not (_launched() or is_distributed()):
        return None
    return _Shard(len(dataset)) if batch_size is None else _Batches(len(dataset), batch_size)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell the loader's sampler the epoch, where it wants to know: it shuffles by it.

    Ranks above 0 start random streams for this epoch: a run that was resumed draws as one that
    was not interrupted, though a checkpoint holds rank 0's random state only.
    """
    for owner in (loader, getattr(loader, "batch_sampler", None)):
        sampler = getattr(owner, "sampler", None)
        tell = getattr(sampler, "set_epoch", None)
        if tell is not None:
            tell(epoch)
            _start_streams(getattr(sampler, "seed", 0), epoch)
            return


def fork_random_streams() -> None:
    """Let augmentation and dropout differ between ranks; rank 0 keeps its streams as they are.

    Call it after data sets and model are made, which all ranks must draw alike.
    """
    _start_streams(torch.initial_seed())


def _start_streams(seed: int, epoch: int = 0) -> None:
    """New streams on rank r > 0, others for each epoch."""
    if is_main_process():
        return
    seed = (seed + get_rank() + epoch * get_world_size()) % 2**32
    random.seed(seed)
    torch.manual_seed(seed)  # of CUDA and MPS too
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


# ---- Model
def wrap_model(model: M, sync_batchnorm: bool = False, **ddp_kwargs: Any) -> M:
    """``model`` in DistributedDataParallel, itself in one process (*collective*).

    After ``.to(device)`` and freezing. ``sync_batchnorm`` (CUDA only) normalises over the global
    batch. ``broadcast_buffers`` may be given by its old or its new name, as torch has both.
    """
    if not _together():
        return model
    devices = {parameter.device for parameter in model.parameters()}
    if any(device.type == "cuda" for device in devices):
        if sync_batchnorm:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        if len(devices) == 1:
            ddp_kwargs.setdefault("device_ids", [devices.pop().index])
    known = inspect.signature(DistributedDataParallel).parameters
    names = ("forward_sync_buffers", "broadcast_buffers")
    for name in ddp_kwargs.keys() & set(names):
        ddp_kwargs[next(n for n in names if n in known)] = ddp_kwargs.pop(name)
    return cast(M, DistributedDataParallel(model, **ddp_kwargs))


def unwrap(model: M) -> M:
    """The module inside DistributedDataParallel or DataParallel, else ``model``.

    Looks through ``torch.compile`` around a wrapper; a compiled model without one keeps its keys.
    """
    inner: Any = getattr(model, "_orig_mod", model)
    wrapper = isinstance(inner, (DistributedDataParallel, DataParallel))
    return inner.module if wrapper else model


def sync_buffers(model: nn.Module) -> None:
    """Give every rank rank 0's buffers, in place (*collective*).

    The wrapper does so before each training forward, so after the last one batch-norm statistics
    differ between ranks: evaluation would give each rank another number.
    """
    if _together():
        for buffer in unwrap(model).buffers():
            dist.broadcast(buffer.detach(), src=0)


def without_module_prefix(state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy without the ``module.`` a saved wrapper put before all keys; else the same object."""
    if not state_dict or not all(str(key).startswith("module.") for key in state_dict):
        return state_dict
    plain = OrderedDict((key[7:], value) for key, value in state_dict.items())
    versions = getattr(state_dict, "_metadata", None)
    if versions is not None:  # its keys: "" is the wrapper, "module" the model
        shorter = {key[7:]: version for key, version in versions.items() if key}
        plain._metadata = shorter  # type: ignore[attr-defined]
    return plain


def gradient_sync(model: nn.Module, sync: bool) -> contextlib.AbstractContextManager[None]:
    """Around forward *and* backward of a micro-batch: average the gradients only if ``sync``."""
    inner: Any = getattr(model, "_orig_mod", model)
    skip = isinstance(inner, DistributedDataParallel) and not sync
    return inner.no_sync() if skip else contextlib.nullcontext()


# ---- Loss
def per_rank_count(count: Any, at_least: float = 0) -> Any:
    """What this rank divides its sum by: its share of all ranks' count (*collective*).

    ``loss.sum() / per_rank_count(mask.sum(), at_least=1)``: DistributedDataParallel's mean over
    the ranks is then the sum of all over the count of all, and ``at_least`` bounds that count,
    not each rank's. Under ``no_grad`` (evaluation) and in one process it is ``count`` itself.
    """
    ranks = get_world_size() if _shares() else 1
    if ranks > 1:
        tensor = isinstance(count, torch.Tensor)
        count = _sum_tensor(count) if tensor else _sums((count,))[0]
    if at_least:
        count = count.clamp(min=at_least) if hasattr(count, "clamp") else max(count, at_least)
    return count / ranks if ranks > 1 else count


def global_mean(mean: torch.Tensor, count: Any) -> torch.Tensor:
    """Weigh this rank's ``mean`` over ``count`` terms by its part of all terms (*collective*).

    ``global_mean(criterion(out, target), (target != ignored).sum())``: the mean over the ranks is
    then the mean over all terms. A rank without terms, where ``mean`` is nan, adds nothing. Under
    ``no_grad`` (evaluation) and in one process it is ``mean`` itself.
    """
    if not _shares():
        return mean
    precise = torch.promote_types(mean.dtype, torch.float32)  # half precision counts to 2048
    own = torch.as_tensor(count, device=mean.device).to(precise)
    total = _sum_tensor(own)
    weighted = mean * (own * get_world_size() / total).to(mean.dtype)
    return torch.where((own == 0) & (total != 0), torch.zeros_like(mean), weighted)


# ---- Metrics
def reduce_sum(*values: Any) -> Any:
    """Values summed over the ranks; several come as a tuple (*collective*).

    Numbers and 0-dim tensors share one float64 message: ints stay ints, exact to 2**53. Other
    tensors and numpy arrays, equal in shape on all ranks, come as new ones of the same type, ints
    exact. A rank that had nothing to add may hold None, or 0 for a tensor. No gradient: for
    metrics only.
    """
    return _one_or_all(_sums(values))


def reduce_mean(*values: Any) -> Any:
    """``reduce_sum`` divided by the number of ranks, so ints become floats (*collective*).

    Where ranks hold unequally many samples the mean of means is wrong: reduce sum and count.
    """
    sums = _sums(values)
    return _one_or_all(tuple(s / get_world_size() for s in sums) if is_distributed() else sums)


def reduce_meter(*meters: Any) -> None:
    """Make ``sum``, ``count``, ``avg`` of complete AverageMeters global, in place (*collective*).

    Once per meter: a second time would count the total again on every rank.
    """
    if not _together():
        return
    totals = _sums([part for meter in meters for part in (meter.sum, meter.count)])
    for meter, total, count in zip(meters, totals[0::2], totals[1::2], strict=True):
        meter.sum, meter.count = total, count
        if count and not isinstance(getattr(type(meter), "avg", None), property):
            meter.avg = total / count


def gather_samples(*lists: Any) -> Any:
    """Lists with one entry per sample, whole and in the data set's order (*collective*).

    After a loop over a loader with ``evaluation_sampler``; several come as a tuple. CUDA tensors
    arrive on the rank's own device. Each rank then holds what one process would.
    """
    if not _together():
        return _one_or_all(lists)
    return _one_or_all(tuple(_dealt_back(parts) for parts in _from_all(lists)))


def gather_batches(*lists: Any) -> Any:
    """``gather_samples`` for lists with a tensor, array or list per batch (*collective*).

    The samples are in order and cut into batches as large as the largest were before.
    """
    if not _together():
        return _one_or_all(lists)
    return _one_or_all(tuple(_cut_again(parts) for parts in _from_all(lists)))


# ---- Files
def save_on_main(obj: Any, path: Any, **kwargs: Any) -> None:
    """``torch.save`` on rank 0; on return every rank finds the file, whole (*collective*)."""
    with main_process_first():
        if is_main_process():
            _save(obj, path, **kwargs)


class NullWriter:
    """Stands in for a writer, file or logger on ranks that must not write.

    Any method returns the NullWriter, ``write`` returns 0. It is true like the real one, so that
    all ranks take the same branch; a real value must come from rank 0 by ``broadcast``.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy, pickle and numpy ask for these
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    __enter__ = __getitem__ = __setitem__ = __call__

    def __exit__(self, *exception: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def write(self, *args: Any) -> int:
        return 0


# ---- Inner workings
def _launched() -> bool:
    return all(name in os.environ for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))


def _torchrun(name: str, alone: int) -> int:
    return int(os.environ[name]) if _launched() else alone


def _together() -> bool:
    """Whether there are ranks to talk to; raises where there should be."""
    if not is_distributed() and get_world_size() > 1:
        raise RuntimeError(
            f"this helper needs all {get_world_size()} ranks, but there is no process group: "
            "call it inside `with distributed_session():`"
        )
    return is_distributed()


def _shares() -> bool:
    """Whether what is computed now is this rank's part of a loss that all ranks train on."""
    return torch.is_grad_enabled() and _together()


def _choose_backend() -> str:
    gpus, ranks = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if 0 < gpus < ranks and is_main_process():
        warnings.warn(
            f"{ranks} ranks share {gpus} GPU(s) and talk over Gloo, which is slow: "
            f"use --nproc_per_node={gpus}",
            stacklevel=2,
        )
    return "nccl" if ranks <= gpus and dist.is_nccl_available() else "gloo"


def _share_random_state() -> None:
    numpy = sys.modules.get("numpy")  # torch imports it where it is installed
    cuda = torch.cuda.is_available()
    own: list[Any] = [random.getstate(), torch.get_rng_state()]
    own.append(numpy.random.get_state() if numpy else None)
    own.append(torch.cuda.get_rng_state() if cuda else None)
    python_state, cpu_state, numpy_state, cuda_state = broadcast(own)
    random.setstate(python_state)
    torch.set_rng_state(cpu_state)
    if numpy and numpy_state:
        numpy.random.set_state(numpy_state)
    if cuda and cuda_state is not None:
        torch.cuda.set_rng_state(cuda_state)


def _agree(succeeded: bool) -> None:
    if _sums([int(not succeeded)])[0] and succeeded:
        raise RuntimeError("another rank failed where this one waited: its traceback says why")


def _one_or_all(results: tuple[Any, ...]) -> Any:
    return results[0] if len(results) == 1 else results


def _sums(values: Any) -> tuple[Any, ...]:
    if not _together():
        return tuple(values)
    for value in values:
        if not (value is None or isinstance(value, (Real, torch.Tensor)) or _is_array(value)):
            kind = type(value).__name__
            raise TypeError(f"only numbers, tensors and arrays can be reduced, not {kind}")
    rows = [_row(value) for value in values]
    sums = _sum_tensor(torch.tensor(rows, dtype=torch.float64)).tolist() if rows else []
    alike = {0.0, float(get_world_size())}
    if any(whole not in alike or missing not in alike for _, _, whole, missing in sums):
        values = _completed(values)  # on all ranks: they have the same sums
    return tuple(_total(value, *row) for value, row in zip(values, sums, strict=True))


def _row(value: Any) -> list[float]:
    """A number, whether it has a fraction, whether it is a tensor or array, or missing.

    A rank without samples may hold the int 0, or None, where others hold a float or a tensor.
    """
    if value is None or not _is_scalar(value):
        return [0.0, 0.0, float(value is not None), float(value is None)]
    scalar = torch.as_tensor(value).detach()
    return [float(scalar), float(scalar.is_floating_point()), 0.0, 0.0]


def _completed(values: Any) -> list[Any]:
    """Zeros of the others' shape and type where this rank holds None, or a number for a tensor."""
    models: list[Any] = [None] * get_world_size()
    dist.all_gather_object(models, [_mapped(_zeros(value), _packed) for value in values])
    completed = []
    for value, others in zip(values, zip(*models, strict=True), strict=True):
        known = [_unpacked(other) for other in others if other is not None]
        whole = [other for other in known if not _is_scalar(other)]
        if whole and (value is None or _is_scalar(value)):
            completed.append(whole[0] + (0 if value is None else value))
        else:
            completed.append(known[0] if value is None and known else value)
    return completed


def _zeros(value: Any) -> Any:
    if value is None or isinstance(value, Real):
        return None if value is None else type(value)()
    return sys.modules["numpy"].zeros_like(value) if _is_array(value) else torch.zeros_like(value)


def _total(value: Any, number: float, fraction: float, *_: float) -> Any:
    if value is None:  # on every rank
        return None
    return _like(value, number, fraction) if _is_scalar(value) else _sum_whole(value)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_scalar(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 0 and not _is_array(value)


def _sum_whole(value: Any) -> Any:
    if not _is_array(value):
        return _sum_tensor(value)
    whole = value.dtype.kind in "iub"  # of which Gloo and NCCL know only some sizes
    tensor = torch.from_numpy((value.astype("int64") if whole else value).copy())
    return _sum_tensor(tensor).numpy().astype("int64" if value.dtype.kind == "b" else value.dtype)


def _like(value: Any, total: float, fraction: float) -> Any:
    number = total if fraction else int(total)
    return (value * 1).new_tensor(number) if isinstance(value, torch.Tensor) else number


def _sum_tensor(value: torch.Tensor) -> torch.Tensor:
    device = value.device if value.device.type in ("cpu", "cuda") else torch.device("cpu")
    if dist.get_backend() == "nccl":
        device = local_device()
    message = (value.detach() * 1).to(device).contiguous()  # a copy; bools become ints
    dist.all_reduce(message)
    return message.to(value.device)


@dataclass(frozen=True)
class _OnGPU:
    """A tensor on its way: pickled as it is, it would land on the sender's device everywhere."""

    tensor: torch.Tensor


def _packed(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    own = value.detach().cpu()
    if own.untyped_storage().nbytes() > own.numel() * own.element_size():
        own = own.clone()  # of a view, pickle sends all it looks at
    return _OnGPU(own) if value.is_cuda else own


def _unpacked(value: Any) -> Any:
    return value.tensor.to(local_device()) if isinstance(value, _OnGPU) else value


def _from_all(lists: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Each list as all ranks have it."""
    everyone: list[Any] = [None] * get_world_size()
    dist.all_gather_object(everyone, _mapped(lists, _packed))
    return zip(*(_mapped(sent, _unpacked) for sent in everyone), strict=True)


def _dealt_back(parts: Any, whole: Any = None) -> Any:
    """Shares r, r + N, r + 2N, ... put together, in ``whole`` if given."""
    ranks, total = len(parts), sum(len(part) for part in parts)
    whole = [None] * total if whole is None else whole
    for rank, part in enumerate(parts):
        if len(part) != len(range(rank, total, ranks)):
            raise ValueError(
                f"rank {rank} has {len(part)} of {total} entries, which is not its share: give the"
                " lists one entry per sample, or evaluate all samples on every rank"
            )
        whole[rank::ranks] = part
    return whole


def _cut_again(parts: tuple[list[Any], ...]) -> list[Any]:
    """The batches of all ranks as one process would have them."""
    batches = [batch for part in parts for batch in part]
    if not batches:
        return []
    size, first = max(map(len, batches)), batches[0]
    total = sum(map(len, batches))
    if isinstance(first, torch.Tensor):
        joined: Any = [torch.cat(part) if part else first[:0] for part in parts]
        whole: Any = _dealt_back(joined, first.new_empty((total, *first.shape[1:])))
    elif _is_array(first):
        stack = sys.modules["numpy"].concatenate
        joined = [stack(part) if part else first[:0] for part in parts]
        whole = _dealt_back(
            joined, sys.modules["numpy"].empty((total, *first.shape[1:]), first.dtype)
        )
    else:
        whole = _dealt_back([[row for batch in part for row in batch] for part in parts])
    return [whole[start : start + size] for start in range(0, total, size)]


def _save(obj: Any, path: Any, **kwargs: Any) -> None:
    named = isinstance(path, (str, os.PathLike))
    if not named or (os.path.exists(path) and not os.path.isfile(path)):
        torch.save(obj, path, **kwargs)  # a buffer, or a device such as /dev/null
        return
    target = Path(os.path.realpath(path))  # a link stays a link
    # torch.save writes the name up to its last dot into the archive: keep that part.
    stem = Path(path).name.rpartition(".")[0] if "." in Path(path).name else Path(path).name
    partial = target.with_name(f"{stem}.tmp{os.getpid()}")
    try:
        torch.save(obj, partial, **kwargs)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


class _Shard(Sampler[int]):
    def __init__(self, length: int) -> None:
        self.indices = range(get_rank(), length, get_world_size())

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class _Batches(Sampler[int]):
    def __init__(self, length: int, batch_size: int) -> None:
        self.length, self.batch_size = length, batch_size

    def __iter__(self) -> Iterator[int]:
        size = self.batch_size
        for start in range(get_rank() * size, self.length, get_world_size() * size):
            yield from range(start, min(start + size, self.length))

    def __len__(self) -> int:
        """Of all ranks: what is divided by ``len(loader)`` after its sum is reduced stays right."""
        return self.length
