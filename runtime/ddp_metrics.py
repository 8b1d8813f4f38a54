"""Numbers of all ranks: what ``ddp_utils`` leaves to those that reduce and gather.

In one process each helper returns what it was given. All are collective: every rank must call
them, in the same order.
"""

from __future__ import annotations

import sys
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist

from .ddp_utils import gather_objects, get_world_size


# ---- Sums and means
def reduce_sum(*values: Any) -> Any:
    """Numbers, tensors and arrays summed over the ranks; several as a tuple (*collective*).

    For metrics: each rank sends what it has to all, and no gradient passes. A rank that had
    nothing to add may hold None, or the 0 that it began with.
    """
    if get_world_size() == 1:
        return _one_or_all(values)
    ranks = gather_objects([_addend(value) for value in values])
    return _one_or_all([_added(parts) for parts in zip(*ranks, strict=True)])


def reduce_mean(*values: Any) -> Any:
    """``reduce_sum`` divided by the number of ranks, so ints become floats (*collective*).

    Where ranks hold unequally many samples the mean of means is wrong: reduce sum and count.
    """
    sums, ranks = reduce_sum(*values), get_world_size()
    if ranks == 1:
        return sums
    return sums / ranks if len(values) == 1 else tuple(total / ranks for total in sums)


def reduce_meter(*meters: Any) -> None:
    """Make ``sum``, ``count``, ``avg`` of complete AverageMeters global, in place (*collective*).

    Once per meter: a second time would count the total again on every rank.
    """
    for meter in meters if get_world_size() > 1 else ():
        meter.sum, meter.count = reduce_sum(meter.sum, meter.count)
        if meter.count and not isinstance(getattr(type(meter), "avg", None), property):
            meter.avg = meter.sum / meter.count


def _one_or_all(results: Any) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _addend(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, Real) and not hasattr(value, "__array__"):
        kind = type(value).__name__
        raise TypeError(f"only numbers, tensors and arrays can be reduced, not {kind}")
    return (value.detach() if isinstance(value, torch.Tensor) else value) * 1  # bools count


def _added(parts: Any) -> Any:
    present = [part for part in parts if part is not None]
    return sum(present[1:], present[0]) if present else None


# ---- Lists with an entry per sample or per batch
def gather_samples(*lists: Any) -> Any:
    """Lists with one entry per sample, whole and in the data set's order (*collective*).

    After a loop over a loader with ``evaluation_sampler``; several come as a tuple. Each rank
    then holds what one process would.
    """
    if get_world_size() == 1:
        return _one_or_all(lists)
    return _one_or_all([_dealt_back(shares) for shares in zip(*gather_objects(lists), strict=True)])


def gather_batches(*lists: Any) -> Any:
    """``gather_samples`` for lists with a tensor, array or list per batch (*collective*).

    The samples are in order and cut into batches as large as the largest were before.
    """
    if get_world_size() == 1:
        return _one_or_all(lists)
    return _one_or_all([_cut_again(shares) for shares in zip(*gather_objects(lists), strict=True)])


def _dealt_back(shares: Any) -> list[Any]:
    """Entries r, r + N, r + 2N ... of rank r, put together."""
    total = sum(map(len, shares))
    whole: list[Any] = [None] * total
    for rank, share in enumerate(shares):
        if len(share) != len(range(rank, total, len(shares))):
            raise ValueError(
                f"rank {rank} has {len(share)} of {total} entries, which is not its share: give the"
                " lists one entry per sample, or evaluate all samples on every rank"
            )
        whole[rank :: len(shares)] = share
    return whole


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


# ---- Counts that a loss is divided by
def per_rank_count(count: Any, at_least: float = 0) -> Any:
    """What this rank divides its sum by: its share of all ranks' count (*collective*).

    ``loss.sum() / per_rank_count(mask.sum(), at_least=1)``: DistributedDataParallel's mean over
    the ranks is then the sum of all over the count of all, and ``at_least`` bounds that count,
    not each rank's. Under ``no_grad`` (evaluation) and in one process it is ``count`` itself.
    """
    ranks = get_world_size() if torch.is_grad_enabled() else 1
    if ranks > 1:
        count = _total(count) if isinstance(count, torch.Tensor) else reduce_sum(count)
    if at_least:
        count = count.clamp(min=at_least) if hasattr(count, "clamp") else max(count, at_least)
    return count / ranks if ranks > 1 else count


def global_mean(mean: torch.Tensor, count: Any) -> torch.Tensor:
    """Weigh this rank's ``mean`` over ``count`` terms by its part of all terms (*collective*).

    ``global_mean(criterion(out, target), (target != ignored).sum())``: the mean over the ranks is
    then the mean over all terms. A rank without terms, where ``mean`` is nan, adds nothing. Under
    ``no_grad`` (evaluation) and in one process it is ``mean`` itself.
    """
    if get_world_size() == 1 or not torch.is_grad_enabled():
        return mean
    precise = torch.promote_types(mean.dtype, torch.float32)  # half precision counts to 2048
    own = torch.as_tensor(count, device=mean.device).to(precise)
    total = _total(own)
    weighted = mean * (own * get_world_size() / total).to(mean.dtype)
    return torch.where((own == 0) & (total != 0), torch.zeros_like(mean), weighted)


def _total(count: torch.Tensor) -> torch.Tensor:
    """The sum over the ranks, without a stop for the CPU: it is wanted in every step."""
    message = (count.detach() * 1).contiguous()  # a copy; bools become ints
    dist.all_reduce(message)
    return message
