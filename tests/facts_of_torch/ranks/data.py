"""What loaders and samplers give to each of two ranks, and which draws they share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    random_split,
)

from tests.facts_of_torch.pairs import groupless
from tests.facts_of_torch.ranks.small import said


def _both(value: Any) -> list[Any]:
    """What both ranks have, in their order."""
    gathered: list[Any] = [None, None]
    dist.all_gather_object(gathered, value)
    return gathered


def orders(rank: int) -> Any:
    """Three epochs: untold, told the epoch, told the same, told in the middle of a pass."""

    def epochs(tell: Any, after: bool = False) -> list[list[int]]:
        sampler, seen = DistributedSampler(range(16)), []
        for epoch in range(3):
            if not after:
                tell(sampler, epoch)
            pass_ = iter(sampler)
            if after:
                tell(sampler, epoch + 1)
            seen.append([*pass_])
        return seen

    told = epochs(lambda sampler, epoch: sampler.set_epoch(epoch))
    shares = [index for share in _both(told[0]) for index in share]
    return {
        "untold": len({*map(tuple, epochs(lambda sampler, epoch: None))}),
        "told": len({*map(tuple, told)}),
        "constant": len({*map(tuple, epochs(lambda sampler, epoch: sampler.set_epoch(7)))}),
        "within": epochs(lambda sampler, epoch: sampler.set_epoch(epoch), after=True) == told,
        "shares": sorted(shares) == [*range(16)],
    }


def asked_of_others(rank: int) -> Any:
    """set_epoch of a loader and of a batch sampler."""
    sampler = DistributedSampler(range(16))
    batches = BatchSampler(sampler, 2, drop_last=False)
    loader = DataLoader(range(16), batch_sampler=batches)
    return {
        "loader": said(lambda: loader.set_epoch(1)),
        "batch sampler": said(lambda: batches.set_epoch(1)),
        "its sampler": said(lambda: loader.batch_sampler.sampler.set_epoch(1)),
    }


def old_iterators(rank: int) -> Any:
    """`next`, the method of Python 2, with and without workers."""
    loaders = [DataLoader(range(4), num_workers=workers) for workers in (0, 1)]
    return [[hasattr(iter(loader), "next"), iter(loader).__next__().item()] for loader in loaders]


def sampler_and_shuffle(rank: int) -> Any:
    sampler = DistributedSampler(range(4))
    return [
        said(lambda: DataLoader(range(4), sampler=sampler, shuffle=True)),
        said(lambda: DataLoader(range(4), sampler=sampler, shuffle=sampler is None)),
    ]


def without_a_sampler(rank: int) -> Any:
    """With one seed: the samples of an epoch, and whether the other rank's batches are the same."""
    torch.manual_seed(0)
    batches = [batch.tolist() for batch in DataLoader(range(8), batch_size=2, shuffle=True)]
    first, second = _both(batches)
    return [len(batches), sorted(i for b in batches for i in b) == [*range(8)], first == second]


def batch_sizes(rank: int) -> Any:
    """With a sampler: a batch is of the size that the loader is given, on each rank."""
    data = range(16)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    return {
        "batch": [len(batch) for batch in loader],
        "lengths": [len(loader), len(loader.sampler), len(loader.dataset)],
    }


def schedule_of_all_batches(rank: int) -> Any:
    """A linear decay over len(dataset) / batch_size steps, at the end of the epoch."""
    data = range(16)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    plan = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=len(data) // 4)
    for _ in loader:
        optimizer.step()
        plan.step()
    return optimizer.param_groups[0]["lr"]


def padded(rank: int) -> Any:
    """5 samples: how many a rank has, how many both, and an accuracy of .8."""
    right = [False, True, True, True, True]
    own = [*DistributedSampler(range(5), shuffle=False)]
    sums = torch.tensor([float(sum(right[i] for i in own)), float(len(own))])
    dist.all_reduce(sums)
    return {"own": own, "accuracy": round((sums[0] / sums[1]).item(), 3)}


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def streams(rank: int) -> Any:
    """An IterableDataset that does not look at ranks or workers."""
    sampler = DistributedSampler(range(4))
    return {
        "sampler": said(lambda: DataLoader(_Stream(), sampler=sampler)),
        "read": [int(sample) for sample in DataLoader(_Stream())],
        "two workers": sorted(int(s) for s in DataLoader(_Stream(), num_workers=2)),
    }


def full_length_divisor(rank: int) -> Any:
    """A loss of 1 for each sample, over len(loader.dataset) and over len(loader.sampler)."""
    data = range(8)
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
    total = sum(float(len(batch)) for batch in loader)
    return [total / len(loader.dataset), total / len(loader.sampler)]


def seeds_of_samplers(rank: int) -> Any:
    """100 samples, seed + rank: how many are seen by anybody, and how many twice."""
    first = [{*share} for share in _both([*DistributedSampler(range(100), seed=rank)])]
    same = [{*share} for share in _both([*DistributedSampler(range(100), seed=0)])]
    return [[len(a | b), len(a & b)] for a, b in (first, same)]


def splits(rank: int) -> Any:
    """random_split of 20 into 16 and 4 after manual_seed(seed + rank), and with a generator."""
    torch.manual_seed(rank)
    own = _both([part.indices for part in random_split(range(20), [16, 4])])
    alike = torch.Generator().manual_seed(0)
    same = _both([part.indices for part in random_split(range(20), [16, 4], alike)])
    held_out_of_0, trained_of_1 = own[0][1], own[1][0]
    return {
        "trained elsewhere": [len({*held_out_of_0} & {*trained_of_1}), len(held_out_of_0)],
        "generator": same[0] == same[1],
    }


def data_of_each_rank(rank: int) -> Any:
    """File names in another order on each rank: samples that are trained on twice, or never."""
    names = [f"{number}.png" for number in range(8)]
    listed = names if rank == 0 else names[::-1]
    own = [listed[index] for index in DistributedSampler(listed, shuffle=False)]
    taken = [name for names in _both(own) for name in names]
    return {
        "seventh": _both(listed[7]),
        "twice": len(taken) - len({*taken}),
        "never": len(names) - len({*taken}),
    }


class _Noise(Dataset[list[float]]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[float]:
        return [torch.rand(1).item(), float(np.random.rand())]


def one_stream(rank: int) -> Any:
    """One seed on all ranks: noise, dropout masks, and draws in workers of loaders."""
    torch.manual_seed(0)
    mask = nn.functional.dropout(torch.ones(32)).tolist()
    noise = torch.rand(2).tolist()
    workers = [torch.stack(batch).tolist() for batch in DataLoader(_Noise(), num_workers=1)]
    torch.manual_seed(rank)
    return {
        "alike": [first == second for first, second in map(_both, (mask, noise, workers))],
        "seed + rank": len({*map(str, _both(torch.rand(2).tolist()))}),
    }


def restored_stream(rank: int) -> Any:
    """The random state of rank 0, set on both: one mask."""
    torch.manual_seed(rank)
    apart = len({*map(str, _both(nn.functional.dropout(torch.ones(32)).tolist()))})
    torch.set_rng_state(_both(torch.get_rng_state())[0])
    return [apart, len({*map(str, _both(nn.functional.dropout(torch.ones(32)).tolist()))})]


@groupless
def shapes(rank: int) -> Any:
    """What is written for 8 samples, with the 4 of a rank."""
    share = torch.arange(24.0).reshape(4, 6)
    mixed = share.view(8, -1)
    return {
        "noise": said(lambda: share + torch.rand(8, 6)),
        "labels": said(lambda: nn.functional.cross_entropy(share, torch.zeros(8).long())),
        "mixed": [*mixed.shape],
        "two samples of one": mixed[0].tolist() + mixed[1].tolist() == share[0].tolist(),
    }


@groupless
def evaluations(rank: int) -> Any:
    """Hits of a model among 6 samples and how many it saw: of all, and of the rank's own."""
    rows, labels = torch.arange(-3.0, 3.0), torch.tensor([0, 1, 0, 0, 1, 1])
    seen = [((x > 0).long() == y) for x, y in ((rows, labels), (rows[rank::2], labels[rank::2]))]
    return [[int(hits.sum()), len(hits)] for hits in seen]
