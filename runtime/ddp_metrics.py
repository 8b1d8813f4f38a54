"""Numbers and batches of all ranks: helpers that communicate; every rank must call each."""

from __future__ import annotations

import collections
import contextlib
import copy
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Sampler, SequentialSampler

from .ddp_utils import (
    broadcast,
    fork_random_streams,
    gather_objects,
    get_rank,
    get_world_size,
    is_main_process,
    per_rank_batch_size,
)

M = TypeVar("M", bound=nn.Module)


# ---- Sums and means
def reduce_sum(*values: Any) -> Any:
    """Each value, of a list each entry, summed over the ranks; None adds nothing (*collective*)."""
    numbers = [n for value in values for n in (value if isinstance(value, list) else [value])]
    if get_world_size() > 1:
        rows = gather_objects([n if n is None else _addend(n) for n in numbers])
        held = [[n for n in column if n is not None] for column in zip(*rows, strict=True)]
        numbers = [sum(parts[1:], parts[0]) if parts else None for parts in held]
    left = iter(numbers)
    found = tuple([next(left) for _ in v] if isinstance(v, list) else next(left) for v in values)
    return found[0] if len(values) == 1 else found


def reduce_mean(*values: Any, weight: float = 1) -> Any:
    """The mean over ranks, of a list that of each entry; see ``batch_weight`` (*collective*)."""
    if weight != 1:
        values = tuple(
            [n * weight for n in v] if isinstance(v, list) else v * weight for v in values
        )
    *means, _ = reduce_sum(*values, None)
    if (ranks := get_world_size()) > 1:
        means = [[n / ranks for n in v] if isinstance(v, list) else v / ranks for v in means]
    return means[0] if len(values) == 1 else tuple(means)


def _addend(value: Any) -> Any:
    if not isinstance(value, Real) and not hasattr(value, "__array__"):
        raise TypeError(f"only numbers, tensors, arrays can be reduced, not {type(value).__name__}")
    return (value.detach() if isinstance(value, torch.Tensor) else value) * 1  # bools count


def reduce_entries(*tables: Any) -> Any:
    """Each dict with its entries summed over the ranks, those of any rank (*collective*)."""
    if get_world_size() == 1:
        return tables[0] if len(tables) == 1 else tables
    ranks = gather_objects([{key: _addend(each) for key, each in one.items()} for one in tables])
    found = [copy.copy(table) for table in tables]  # a defaultdict stays one
    for whole, parts in zip(found, zip(*ranks, strict=True), strict=True):
        whole.clear()
        for key, value in (entry for part in parts for entry in part.items()):
            whole[key] = whole[key] + value if key in whole else value
    return found[0] if len(found) == 1 else tuple(found)


def reduce_meter(*meters: Any) -> None:
    """Make ``sum``, ``count``, ``avg`` of AverageMeters global, in place, once (*collective*)."""
    for meter in meters if get_world_size() > 1 else ():
        meter.sum, meter.count = reduce_sum(meter.sum, meter.count)
        if meter.count and not isinstance(getattr(type(meter), "avg", None), property):
            meter.avg = meter.sum / meter.count


def global_meter(*meters: Any, weight: float = 1) -> Any:
    """AverageMeters of all ranks to show in between, ``val`` the mean of theirs (*collective*).

    Of a list or a dict of meters, each of them.
    """
    shown = [_shown(meter, weight) for meter in meters]
    return shown[0] if len(shown) == 1 else shown


def _shown(meter: Any, weight: float) -> Any:
    if isinstance(meter, dict):
        return {name: _shown(one, weight) for name, one in meter.items()}
    if isinstance(meter, (list, tuple)):
        return [_shown(one, weight) for one in meter]
    shown = copy.copy(meter)
    if get_world_size() > 1:
        reduce_meter(shown)
        if hasattr(shown, "val"):
            shown.val = reduce_mean(shown.val, weight=weight)
    return shown


def global_copy(owner: Any, sums: tuple[str, ...] = (), means: tuple[str, ...] = ()) -> Any:
    """A copy of an object to show, with attributes summed, or averaged, over ranks (*collective*).

    They are numbers, arrays, or lists, deques or dicts of numbers.
    """
    if get_world_size() == 1:
        return owner
    shown = copy.copy(owner)
    for name in (*sums, *means):
        value = [*v] if hasattr(v := getattr(owner, name), "maxlen") else v  # a deque is a list
        if isinstance(value, dict):
            whole = reduce_entries(value)
            for key in whole if name in means else ():
                whole[key] /= get_world_size()
        else:
            whole = reduce_mean(value) if name in means else reduce_sum(value)
        setattr(shown, name, whole)
    return shown


# ---- Lists with an entry per sample or per batch
def gather_samples(*lists: Any) -> Any:
    """Lists with one entry per sample, whole and in the data set's order (*collective*)."""
    if get_world_size() > 1:
        lists = tuple(_dealt_back(shares) for shares in zip(*gather_objects(lists), strict=True))
    return lists[0] if len(lists) == 1 else lists


def _dealt_back(shares: Any) -> list[Any]:
    """Entries r, r + N, r + 2N ... of rank r, put together."""
    whole: list[Any] = [None] * sum(map(len, shares))
    for rank, share in enumerate(shares):
        if len(share) != len(range(rank, len(whole), len(shares))):
            found = f"rank {rank} has {len(share)} of {len(whole)} entries, which is not its share"
            raise ValueError(f"{found}: give the lists one per sample, or evaluate on every rank")
        whole[rank :: len(shares)] = share
    return whole


def gather_batches(*lists: Any) -> Any:
    """``gather_samples`` for lists with a tensor, array or list per batch (*collective*)."""
    if get_world_size() > 1:
        lists = tuple(_cut_again(shares) for shares in zip(*gather_objects(lists), strict=True))
    return lists[0] if len(lists) == 1 else lists


def _cut_again(shares: Any) -> list[Any]:
    batches = [batch for share in shares for batch in share]
    rows = _dealt_back([[row for batch in share for row in batch] for share in shares])
    size = max([1, *map(len, batches)])
    cut = [rows[start : start + size] for start in range(0, len(rows), size)]
    if not batches or not hasattr(batches[0], "__array__"):
        return cut
    if isinstance(batches[0], torch.Tensor):
        return [torch.stack(batch) for batch in cut]
    return [sys.modules["numpy"].stack(batch) for batch in cut]


# ---- Orders that a sampler draws
def order_share(sampler: Any, drop_last: bool = False) -> Any:
    """Every N-th index of rank 0's ``sampler``; each pass over it is a broadcast, for all ranks."""
    return _OrderShare(sampler, drop_last) if get_world_size() > 1 else sampler


class _OrderShare(Sampler[Any]):
    """Indices r, r + N, r + 2N ... of rank r, padded or cut as DistributedSampler does."""

    def __init__(self, sampler: Any, drop_last: bool) -> None:
        self.sampler, self.drop_last = sampler, drop_last
        length, ranks = len(sampler), get_world_size()
        if length % ranks and not drop_last and is_main_process():
            repeated = f"each epoch repeats {-length % ranks} of them"
            warnings.warn(f"{length} samples, {ranks} ranks: {repeated}", stacklevel=3)

    def __iter__(self) -> Iterator[Any]:
        ranks = get_world_size()
        first: list[Any] = []
        order = iter(self.sampler)  # all ranks draw, and so as often
        while block := broadcast(list(itertools.islice(order, 4096 * ranks))):  # it may not end
            first = first or block[:ranks]
            whole = len(block) // ranks * ranks
            if self.drop_last:
                del block[whole:]
            elif whole < len(block):
                block += itertools.islice(itertools.cycle(first), whole + ranks - len(block))
            yield from block[get_rank() :: ranks]

    def __len__(self) -> int:
        length, ranks = len(self.sampler), get_world_size()
        return length // ranks if self.drop_last else -(-length // ranks)


def share_batches(loader: DataLoader[Any]) -> DataLoader[Any]:
    """``loader`` itself, which gives each rank its equal part of rank 0's batches from now on.

    Its length and ``batch_size`` stay those of all ranks; each pass is a broadcast, for all ranks.
    """
    if get_world_size() > 1:
        per_rank_batch_size(loader.batch_size or 0)  # or the job ends here
        vars(loader)["batch_sampler"] = _BatchShare(loader.batch_sampler)  # it has no setter
    return loader


class _BatchShare(Sampler[list[Any]]):
    """Samples r, r + N, r + 2N ... of each batch for rank r.

    A batch shorter than those before it is padded with its own, another that does not divide ends
    the job.
    """

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[Any]]:
        ranks, longest = get_world_size(), 0
        order = iter(self.batches)  # all ranks draw, and so as often
        if ranks == 1:
            yield from order
        while block := broadcast(list(itertools.islice(order, 64))):
            for batch in block:
                if len(batch) >= longest:
                    per_rank_batch_size(longest := len(batch))
                if more := -len(batch) % ranks:
                    said = f"{len(batch)} samples, {ranks} ranks: {more} of them repeated"
                    warnings.warn(said, stacklevel=2)
                yield [*batch, *itertools.islice(itertools.cycle(batch), more)][get_rank() :: ranks]

    def __len__(self) -> int:
        return len(self.batches)


# ---- Loaders that Lightning's Trainer is given
def share_training(loader: DataLoader[Any]) -> DataLoader[Any]:
    """``share_batches`` for a Trainer, also of a loader made before it has started the ranks."""
    return _left_alone(loader, _BatchShare(_batches_of(loader)))


def share_evaluation(loader: DataLoader[Any]) -> DataLoader[Any]:
    """``loader`` itself, which gives each of N ranks every N-th of its batches from now on.

    For ``val_dataloader`` and its kin: of fewer batches than ranks, each gets a part of the
    samples. A pass over one that shuffles is a broadcast, for all ranks.
    """
    return _left_alone(loader, _WholeBatches(_batches_of(loader), loader))


def _batches_of(loader: DataLoader[Any]) -> Any:
    if loader.batch_sampler is None:
        raise TypeError("a loader without batches cannot be shared out")
    return loader.batch_sampler


class _WholeBatches(Sampler[list[Any]]):
    """Batches r, r + N, r + 2N ... of rank r."""

    def __init__(self, batches: Any, loader: DataLoader[Any]) -> None:
        own = loader.batch_size is None  # a batch sampler of the project's
        self.batches = batches
        self.drawn = own or not isinstance(loader.sampler, SequentialSampler)

    def __iter__(self) -> Iterator[list[Any]]:
        if (ranks := get_world_size()) == 1:
            return iter(self.batches)
        batches = list(self.batches)
        if self.drawn:
            batches = broadcast(batches)
        if len(batches) < ranks:
            samples = [sample for batch in batches for sample in batch]
            if len(samples) < ranks:
                raise ValueError(f"{len(samples)} samples cannot be shared out to {ranks} ranks")
            if is_main_process():
                parts = "each rank has a part of the samples; sums of means and maxima are others"
                warnings.warn(f"{len(batches)} batches, {ranks} ranks: {parts}", stacklevel=2)
            cuts = [len(samples) * rank // ranks for rank in range(ranks + 1)]
            batches = [samples[start:end] for start, end in itertools.pairwise(cuts)]
        return iter(batches[get_rank() :: ranks])

    def __len__(self) -> int:
        return max(1, len(range(get_rank(), len(self.batches), get_world_size())))


def _left_alone(loader: DataLoader[Any], shares: Any) -> DataLoader[Any]:
    """A loader that Lightning takes for one that is dealt: it makes another one of others.

    In one process, too, where it is asked for DDP: what it makes there stays.
    """
    if dist.is_initialized() and get_world_size() == 1:
        return loader
    vars(loader).update(sampler=_OfRanks(loader.sampler, shares), batch_sampler=shares)
    return loader


class _OfRanks(DistributedSampler[Any]):
    """The sampler of a loader that shares out batches, which draws what it did before."""

    def __init__(self, sampler: Any, shares: Any) -> None:
        self.sampler, self.batches = sampler, shares.batches

    def set_epoch(self, epoch: int) -> None:
        for one in (self.sampler, getattr(self.batches, "sampler", None), self.batches):
            getattr(one, "set_epoch", bool)(epoch)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


# ---- Batches that every rank makes
def own_share(*tensors: Any, dim: int = 0) -> Any:
    """This rank's equal part of rank 0's batch: of each of its ``tensors`` (*collective*).

    ``dim`` is the axis of samples. Beside tensors with it, one number per sample is divided, too;
    of a tuple all parts, as of a text and its lengths.
    """
    if get_world_size() > 1:
        groups = [one if isinstance(one, tuple) else (one,) for one in tensors]
        _check_divisible(tuple(one for group in groups for one in group), dim)
        parts = [tuple(_own_part(one, dim) for one in group) for group in groups]
        pairs = zip(tensors, parts, strict=True)
        tensors = tuple(own if isinstance(one, tuple) else own[0] for one, own in pairs)
    return tensors[0] if len(tensors) == 1 else tensors


def _check_divisible(tensors: tuple[Any, ...], dim: int) -> None:
    """Raise, on every rank alike, where what they made is no batch that N ranks can divide."""
    shapes = [(type(one).__name__, *getattr(one, "shape", ())) for one in tensors]
    of_all = gather_objects(shapes)
    if any(other != of_all[0] for other in of_all):
        raise ValueError(f"the ranks made different batches: {' and '.join(map(str, of_all))}")
    axes = [getattr(one, "ndim", 0) if hasattr(one, "__array__") else 0 for one in tensors]
    if max(axes) <= dim or any(many <= dim and many != 1 for many in axes):
        raise TypeError(f"only tensors with an axis {dim} can be divided, not {shapes}")
    if any(getattr(one, "grad_fn", None) is not None for one in tensors):
        raise ValueError("divide what a model is given, not what one has computed")
    sizes, ranks = sorted({one.shape[_axis(one, dim)] for one in tensors}), get_world_size()
    if len(sizes) > 1:
        raise ValueError(f"axis {dim} is not that of the samples in all of {shapes}")
    if sizes[0] % ranks or not sizes[0]:
        sentence = f"a batch of {sizes[0]} samples cannot be split evenly over {ranks} ranks"
        raise SystemExit(sentence if is_main_process() else 1)  # one line, no tracebacks


def _axis(tensor: Any, dim: int) -> int:
    return 0 if tensor.ndim == 1 else dim


def _own_part(batch: Any, dim: int) -> Any:
    if not isinstance(batch, torch.Tensor):
        return _own_part(torch.as_tensor(batch), dim).numpy()
    whole = batch.detach().clone(memory_format=torch.contiguous_format)
    dist.broadcast(whole, src=0)  # ranks shuffle, or order a set, each in its own way
    axis = _axis(whole, dim)
    size = whole.shape[axis] // get_world_size()
    own = whole.narrow(axis, get_rank() * size, size).contiguous()
    return own.requires_grad_(batch.requires_grad)


# ---- Counts that a loss is divided by
def per_rank_count(count: Any, at_least: float = 0) -> Any:
    """What this rank divides its sum by: its part of all ranks' count (*collective*)."""
    ranks = get_world_size() if torch.is_grad_enabled() else 1  # an evaluation is this rank's own
    if ranks > 1:
        count = _total(count) if isinstance(count, torch.Tensor) else reduce_sum(count)
    if at_least:
        count = count.clamp(min=at_least) if hasattr(count, "clamp") else max(count, at_least)
    return count / ranks if ranks > 1 else count


def global_mean(mean: torch.Tensor, count: Any) -> torch.Tensor:
    """This rank's ``mean`` of ``count`` terms, weighed by its part of all terms (*collective*)."""
    if get_world_size() == 1 or not torch.is_grad_enabled():  # an evaluation is this rank's own
        return mean
    own = torch.as_tensor(count, device=mean.device).double()  # half precision counts to 2048
    total = _total(own)
    weighted = mean * (own * get_world_size() / total).to(mean.dtype)
    # A rank without terms, where the mean is nan, adds nothing.
    return torch.where((own == 0) & (total != 0), torch.zeros_like(mean), weighted)


def loss_terms(criterion: Any, target: torch.Tensor) -> Any:
    """What a criterion's mean divides by; 1 where that is as much on each rank."""
    classes = type(criterion) in (nn.CrossEntropyLoss, nn.NLLLoss)
    if not classes or target.is_floating_point():  # probabilities: a mean over all samples
        return 1
    counted = target[target != criterion.ignore_index]
    return counted.numel() if criterion.weight is None else criterion.weight[counted].sum()


def _total(count: torch.Tensor) -> torch.Tensor:
    """The sum over the ranks, without a stop for the CPU: it is wanted in every step."""
    message = (count.detach() * 1).contiguous()  # a copy; bools become ints
    dist.all_reduce(message)
    return message


# ---- Losses that compare the samples of a batch
def whole_batch(rows: Any) -> Any:
    """The ``rows`` of all ranks, which have equally many, with gradient (*collective*).

    Of tuples, lists and dicts each tensor. Beside outputs with gradient, what has not as many rows
    is the same on all ranks, and stays as it is.
    """
    if get_world_size() == 1 or not torch.is_grad_enabled():  # an evaluation is this rank's own
        return rows
    if isinstance(rows, torch.Tensor):
        _check_alike(rows)
        return _WholeBatch.apply(rows)  # type: ignore[no-untyped-call]
    parts: list[torch.Tensor] = []
    _mapped(rows, parts.append)
    sizes = {part.shape[:1] for part in parts if part.requires_grad}
    if len(sizes) > 1:
        raise ValueError(f"outputs with {sorted(sizes)} rows are not all of the samples of a batch")
    of_all = sizes or {part.shape[:1] for part in parts}
    return _mapped(rows, lambda part: (whole_batch if part.shape[:1] in of_all else _same)(part))


def _mapped(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: _mapped(part, function) for key, part in value.items()}
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"only tensors have rows to put together, not {type(value).__name__}")
    parts = [_mapped(part, function) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def _same(part: torch.Tensor) -> torch.Tensor:
    _check_alike(part)
    first = part.detach().clone(memory_format=torch.contiguous_format)
    dist.broadcast(first, src=0)
    if not torch.equal(first, part):
        raise ValueError(f"{tuple(part.shape)} is not of the samples, and other ranks have others")
    return part


def _check_alike(rows: torch.Tensor) -> None:
    extent = torch.tensor([*rows.shape, *(-size for size in rows.shape)], device=rows.device)
    largest = extent.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    if not torch.equal(largest, extent):
        raise ValueError(f"rank {get_rank()} has rows of {tuple(rows.shape)}, others have not")


class _WholeBatch(torch.autograd.Function):
    """Rows of all ranks, in the order of the ranks; what they say of a row is added up."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        shares = [
            torch.empty_like(rows, memory_format=torch.contiguous_format)
            for _ in range(get_world_size())
        ]
        dist.all_gather(shares, rows.contiguous())
        return torch.cat(shares)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return _total(gradient).chunk(get_world_size())[get_rank()]


# ---- Batches that every rank has whole
def share_loading(loader: DataLoader[Any]) -> DataLoader[Any]:
    """``loader`` itself, of whose batches each rank loads its rows from now on; all get all.

    Every rank has to draw alike before each pass (*collective*: each batch).
    """
    if get_world_size() > 1:
        vars(loader)["batch_sampler"] = _RowsOf(loader.batch_sampler)  # it has no setter
        kind = type(loader)
        methods = {"__iter__": _together, "__module__": kind.__module__}
        loader.__class__ = type(kind.__name__, (kind,), methods)
    return loader


class _RowsOf(Sampler[list[Any]]):
    """This rank's rows of each batch; of one with fewer rows than ranks, all of them."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self.order: list[list[Any]] | None = None
        self.sizes: collections.deque[list[int]] = collections.deque()
        self.passes = 0

    def draw(self) -> None:
        """Draw the order of a pass, if none is drawn that no pass has begun with."""
        self.order = broadcast(list(self.batches)) if self.order is None else self.order

    def __iter__(self) -> Iterator[list[Any]]:
        self.draw()
        order, self.order = self.order or [], None
        for batch in order:
            sizes = _sizes(len(batch))
            self.sizes.append(sizes)
            own = slice(sum(sizes[: get_rank()]), sum(sizes[: get_rank() + 1]))
            yield batch[own] if min(sizes) else batch

    def __len__(self) -> int:
        return len(self.batches)


def _together(loader: Any) -> Iterator[Any]:
    """A pass over a loader that puts what the ranks have loaded together."""
    rows = loader.batch_sampler
    rows.sizes.clear()
    kind: Any = type(loader).__base__
    batches = kind.__iter__(loader)
    if not rows.sizes:
        rows.draw()  # by what all ranks draw from alike; samples are drawn for apart
    rows.passes += get_world_size()
    streams: Any = [(random.getstate, random.setstate), (torch.get_rng_state, torch.set_rng_state)]
    if numpy := sys.modules.get("numpy"):
        streams.append((numpy.random.get_state, numpy.random.set_state))
    own: Any = None
    while True:
        alike = [read() for read, _ in streams]
        if own is None:
            fork_random_streams((torch.initial_seed() + rows.passes) % 2**32)
        for (_, restore), state in zip(streams, own or (), strict=False):
            restore(state)
        batch = next(batches, streams)
        own = [read() for read, _ in streams]
        for (_, restore), state in zip(streams, alike, strict=True):
            restore(state)
        if batch is streams:
            return
        sizes = rows.sizes.popleft()
        yield _of_all_ranks(batch, sizes) if min(sizes) else batch


def _of_all_ranks(part: Any, sizes: list[int]) -> Any:
    if isinstance(part, torch.Tensor):
        return _all_rows(part, sizes)
    if isinstance(part, dict):
        return type(part)({key: _of_all_ranks(each, sizes) for key, each in part.items()})
    if isinstance(part, (tuple, list)) and part and not isinstance(part[0], (str, bytes)):
        parts = [_of_all_ranks(each, sizes) for each in part]
        return type(part)(*parts) if hasattr(part, "_fields") else type(part)(parts)
    return sum(gather_objects(part), type(part)())  # a list with an entry for each sample


def _sizes(rows: int) -> list[int]:
    ranks = get_world_size()
    return [rows * (rank + 1) // ranks - rows * rank // ranks for rank in range(ranks)]


def through_wrapper(model: Any, name: str) -> Callable[..., Any]:
    """``model.name``, called as the forward of ``wrap_model``'s result, which averages for it.

    *collective*: each call that records gradients.
    """
    if not isinstance(model, DistributedDataParallel):
        return getattr(model, name)  # type: ignore[no-any-return]
    inner = model.module

    def forward(*args: Any, **kwargs: Any) -> Any:
        del inner.forward  # from here on it is its own again
        return getattr(inner, name)(*args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        inner.forward = forward
        return model(*args, **kwargs)

    return call


def average_statistics(model: M) -> M:
    """``wrap_model``'s result, whose instance norms keep statistics of all ranks' samples.

    They are means over samples: after each forward that trains, those over the ranks.
    """
    if isinstance(model, DistributedDataParallel):
        model.register_forward_hook(_average_kept)
    return model


def _average_kept(wrapper: nn.Module, *_: Any) -> None:
    norms = (m for m in wrapper.modules() if isinstance(m, nn.modules.instancenorm._InstanceNorm))
    for buffer in (b.data for norm in norms for b in norm.buffers() if wrapper.training):
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= get_world_size()


def split_batches(model: M) -> M:
    """``wrap_model``'s result, to be given whole batches: each rank computes its rows of them.

    As nn.DataParallel, it gives all ranks the outputs for the whole batch, with gradient. Every
    rank has to make the same batches, and to compute the same loss of them. Without gradient
    each rank computes all rows. Inputs need the samples on their first axis; where outputs have
    them is tried out in the first call (*collective*: each call that records gradients).
    """
    if isinstance(model, DistributedDataParallel):
        model.__class__ = _OfWholeBatches  # type: ignore[assignment]  # a copy is one, too
    return model


class _OfWholeBatches(DistributedDataParallel):
    """DistributedDataParallel that divides what it is given, and puts the outputs together."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.module(*args, **kwargs)
        tensors: list[Any] = []
        _each_tensor((args, kwargs), tensors.append)
        device = next(self.parameters()).device
        sizes = _rows_of_ranks(tensors, device)
        self.calls = getattr(self, "calls", 0) + 1
        if min(sizes) < 2:  # too few rows, for batch norm at least: each computes all
            return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]
        if self.calls == 1:
            self.places = _places(self.module, args, kwargs)
            sizes = _unlike(sizes)
        own = slice(sum(sizes[: get_rank()]), sum(sizes[: get_rank() + 1]))
        args, kwargs = _each_tensor((args, kwargs), lambda whole: _own_rows(whole, own, sizes))
        with _draws_of(self.calls * get_world_size() + get_rank()):
            outputs = super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]
        made: list[torch.Tensor] = []
        _each_tensor(outputs, made.append, of_model=True)
        alike = len(made) == len(self.places)  # else it gives others than at first
        places = iter(self.places if alike else [_FIRST] * len(made))
        return _each_tensor(
            outputs, lambda part: _placed(part, sizes, next(places), device), of_model=True
        )


_Place = tuple[int, int, int]  # the axis of samples, blocks of them along it, entries of each
_FIRST = (0, 1, 1)


@contextlib.contextmanager
def _draws_of(number: int) -> Iterator[None]:
    """Draw apart from what has another number, and afterwards go on as if nothing was drawn."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed((torch.initial_seed() + number) % 2**63)
        yield


@torch.no_grad()
def _places(module: nn.Module, args: Any, kwargs: Any) -> list[_Place | None]:
    """Where each output has its samples, by those for the second half of a batch.

    None is one that is the same for all. Raises where a half's outputs are not those for all of it.
    """
    found: list[list[torch.Tensor]] = [[], []]
    lengths: list[int] = []
    try:
        halves = _each_tensor((args, kwargs), lambda whole: whole[len(whole) // 2 :])
        for outputs, given in zip(found, ((args, kwargs), halves), strict=True):
            _each_tensor(given, lambda part: lengths.append(len(part)))
            with _draws_of(0):
                before = torch.get_rng_state()
                made = copy.deepcopy(module).eval()(*given[0], **given[1])  # which keeps its state
                if not torch.equal(before, torch.get_rng_state()):
                    return []
            _each_tensor(made, outputs.append, of_model=True)
    except Exception:  # it does not run so, in eval mode perhaps: nothing is said
        return []
    name = type(module).__name__
    if len(found[0]) != len(found[1]):
        raise ValueError(f"{name} gives {len(found[0])} outputs, {len(found[1])} for less samples")
    pairs = zip(*found, strict=True)
    return [
        _place(torch.as_tensor(whole), torch.as_tensor(some), lengths[0], lengths[-1], name)
        for whole, some in pairs
    ]


def _place(
    whole: torch.Tensor, some: torch.Tensor, rows: int, last: int, name: str
) -> _Place | None:
    if whole.ndim and whole.shape == some.shape and torch.equal(whole, some):
        return None
    for axis, size in enumerate(whole.shape):
        often = size // rows
        if often and some.ndim == whole.ndim and some.shape[axis] == often * last:
            for blocks in sorted({1, often}) if often * rows == size else ():
                place = (axis, blocks, often // blocks)
                of_last = _samples_first(whole, place, rows)[-last:].float()
                largest = float(of_last.abs().max())
                found = _samples_first(some, place, last).float()
                if found.shape == of_last.shape and torch.allclose(
                    of_last, found, rtol=1e-2, atol=1e-2 * largest
                ):
                    return place
    raise ValueError(f"{name} does not compute its samples one by one")


def _samples_first(tensor: torch.Tensor, place: _Place, rows: int) -> torch.Tensor:
    axis, blocks, each = place
    shape = *tensor.shape[:axis], blocks, rows, each, *tensor.shape[axis + 1 :]
    return tensor.reshape(shape).movedim(axis + 1, 0)


def _placed(part: Any, sizes: list[int], place: _Place | None, device: torch.device) -> Any:
    """The output of all ranks, of the part of it that is of this one's rows."""
    if not isinstance(part, torch.Tensor):  # an array
        return _placed(torch.as_tensor(part, device=device), sizes, place, device).cpu().numpy()
    if place is None:
        return _same(part)
    (axis, blocks, each), own = place, sizes[get_rank()]
    if part.ndim <= axis or part.shape[axis] != blocks * own * each:
        raise ValueError(f"an output of {tuple(part.shape)} has no row for each of {own} samples")
    whole: torch.Tensor = _all_rows(_samples_first(part, place, own), sizes)
    return whole.movedim(0, axis + 1).flatten(axis, axis + 2)


def _unlike(sizes: list[int]) -> list[int]:
    """Other shares for the first call, so that nothing but samples has as many rows everywhere."""
    return [sizes[0] + 1, *sizes[1:-1], sizes[-1] - 1] if sizes[-1] > 2 else sizes


def _own_rows(whole: Any, own: slice, sizes: list[int]) -> Any:
    if isinstance(whole, torch.Tensor) and whole.requires_grad:
        return _OwnRows.apply(whole, sizes)  # type: ignore[no-untyped-call]
    return whole[own]


def _all_rows(rows: torch.Tensor, sizes: list[int]) -> Any:
    return _AllRows.apply(rows, sizes)  # type: ignore[no-untyped-call]


_SETTINGS = (bool, Real, str, bytes, torch.device, torch.dtype)


def _each_tensor(value: Any, function: Callable[[Any], Any], of_model: bool = False) -> Any:
    """``value`` with ``function`` of each tensor and array in it; numbers and the like stay."""
    rows = getattr(value, "ndim", 0) if hasattr(value, "__array__") else 0
    if rows or (of_model and isinstance(value, torch.Tensor)):
        return function(value)
    if isinstance(value, dict):
        named = {key: _each_tensor(part, function, of_model) for key, part in value.items()}
        return type(value)(**named) if hasattr(value, "to_tuple") else named
    if isinstance(value, (tuple, list)):
        parts = [_each_tensor(part, function, of_model) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if value is None or hasattr(value, "__array__") or isinstance(value, _SETTINGS):
        return value
    raise TypeError(f"only tensors are divided by rows, not {type(value).__name__}")


def _rows_of_ranks(tensors: list[Any], device: torch.device) -> list[int]:
    """How many rows each rank computes; raises where ranks were not given the same batch."""
    lengths = sorted({len(tensor) for tensor in tensors})
    ranks = get_world_size()
    rows = lengths[0] if len(lengths) == 1 else 0
    seen = [_weighed(torch.as_tensor(tensor)) for tensor in tensors] if rows else []
    own = torch.tensor([rows, len(tensors), sum(seen)], dtype=torch.float64).to(device)
    of_all = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(of_all, own)
    if len(lengths) != 1:
        raise ValueError(f"which of {lengths} is the number of samples in the inputs of a model?")
    if not all(torch.allclose(one, of_all[0], rtol=1e-3, equal_nan=True) for one in of_all):
        raise ValueError("the ranks were given different batches: seed what makes or orders them")
    return _sizes(rows)


def _weighed(tensor: torch.Tensor) -> float:
    """A number that tells batches apart, and the order of their rows."""
    rows = tensor.detach().reshape(len(tensor), -1)
    sums = (rows.long() if rows.dtype is torch.bool else rows).abs().sum(1, dtype=torch.float64)
    weights = torch.arange(1, len(rows) + 1, device=sums.device, dtype=sums.dtype)
    return float((sums * weights).mean())


class _OwnRows(torch.autograd.Function):
    """A rank's rows of what all ranks have; backward, all get the gradient of all rows."""

    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        ctx.sizes = sizes
        return whole.narrow(0, sum(sizes[: get_rank()]), sizes[get_rank()]).clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _all_rows(gradient, ctx.sizes) / len(ctx.sizes), None


class _AllRows(torch.autograd.Function):
    """The rows of all ranks, each with its ``sizes``, of which all compute the same loss.

    Backward, a rank's own get the gradient times the number of ranks, over which
    DistributedDataParallel then takes the mean.
    """

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        ctx.sizes, own = sizes, sizes[get_rank()]
        if rows.shape[:1] != (own,):
            raise ValueError(f"output {tuple(rows.shape)} has no row for each of {own} samples")
        _check_alike(rows.new_empty((0, *rows.shape[1:])))
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        of_all = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(of_all, padded)
        return torch.cat([part[:size] for part, size in zip(of_all, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _OwnRows.apply(gradient, ctx.sizes) * len(ctx.sizes), None  # type: ignore[no-untyped-call]
