"""The arithmetic against what it describes: torch's chunks, loaders and sampler, the runtime."""

from __future__ import annotations

import re

import pytest
import torch
from ddpify.runtime import ddp_utils
from torch.utils.data import DataLoader, DistributedSampler

from ddpify.advice import split

SIZES = [(size, parts) for size in (1, 2, 5, 7, 16, 33, 64, 100) for parts in (1, 2, 3, 4, 8)]


@pytest.mark.parametrize(("size", "parts"), SIZES)
def test_chunks_are_those_of_torch(size: int, parts: int) -> None:
    assert split.chunks(size, parts) == tuple(map(len, torch.zeros(size).chunk(parts)))


@pytest.mark.parametrize(("size", "ranks"), SIZES)
def test_shares_are_those_of_the_runtime(
    size: int, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddp_utils, "get_world_size", lambda: ranks)
    share = split.per_rank(size, ranks)
    if share is not None:
        assert ddp_utils.per_rank_batch_size(size) == share
        assert split.nearest(size, ranks) == ()
        return
    with pytest.raises(SystemExit) as stop:
        ddp_utils.per_rank_batch_size(size)
    named = tuple(map(int, re.findall(r"\d+", str(stop.value).partition("use")[2])))
    assert split.nearest(size, ranks) == named


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("samples", [1, 31, 64, 97, 1000])
@pytest.mark.parametrize(("share", "ranks"), [(1, 2), (4, 4), (8, 2), (16, 3)])
def test_steps_are_those_of_loader_and_sampler(
    samples: int, share: int, ranks: int, drop_last: bool
) -> None:
    data = range(samples)
    whole = share * ranks
    one = DataLoader(data, whole, drop_last=drop_last)  # type: ignore[arg-type,var-annotated]
    assert split.steps(samples, whole, drop_last) == len(one)
    if samples < ranks:
        return  # torch's sampler does not take so few
    sampler = DistributedSampler(data, ranks, 0, drop_last=drop_last)  # type: ignore[arg-type,var-annotated]
    own = DataLoader(data, share, sampler=sampler, drop_last=drop_last)  # type: ignore[arg-type,var-annotated]
    assert split.rank_steps(samples, share, ranks, drop_last) == len(own) == len(one)
    assert split.repeated(samples, ranks, drop_last) == max(0, sampler.total_size - samples)
