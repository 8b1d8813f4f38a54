"""Run by torchrun: every rank does the same things and prints what it saw as one JSON object.

One launch for many checks, since each launch costs seconds. The copy of ``ddp_utils`` that is
imported lies in the working folder, as in a migrated project.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import math
import os
import random
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ddp_metrics as metrics
import ddp_utils as ddp
import numpy as np
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

warnings.simplefilter("error", FutureWarning)  # what torch deprecates must not be used
warnings.simplefilter("error", DeprecationWarning)
warnings.simplefilter("error", RuntimeWarning)  # set before the session: must hold on every rank
SHARED = Path.cwd()


def attempt(action: Callable[[], Any]) -> str:
    try:
        return str(action())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def identity() -> Any:
    return {
        "rank": ddp.get_rank(),
        "world_size": ddp.get_world_size(),
        "local_rank": ddp.get_local_rank(),
        "main": ddp.is_main_process(),
        "distributed": ddp.is_distributed(),
        "device": str(ddp.local_device()),
    }


def draws() -> Any:
    return [random.random(), float(np.random.rand()), torch.rand(2).tolist()]


def notices() -> Any:
    logging.basicConfig(level=logging.INFO)
    logging.info("an info record")
    logging.error("an error record of rank %d", ddp.get_rank())
    warnings.warn("a warning", stacklevel=1)
    return attempt(lambda: warnings.warn("made an error", RuntimeWarning, stacklevel=1))


def sums() -> Any:
    rank = ddp.get_rank()
    tensor = torch.tensor([1.0, 2.0], requires_grad=True) * (rank + 1)
    total, count, fraction, elements, scalar, flags, flag = metrics.reduce_sum(
        2**50 + rank, True, 0.5, tensor, torch.tensor(rank), torch.tensor([True]), tensor[0] > 0
    )
    wide = torch.arange(6).reshape(2, 3).T
    return {
        "int": [total, type(total).__name__],
        "bool": [count, type(count).__name__],
        "float": fraction,
        "tensor": elements.tolist(),
        "gradient": elements.requires_grad,
        "argument": tensor.tolist() == [rank + 1.0, 2 * rank + 2.0],
        "scalar": [scalar.tolist(), str(scalar.dtype)],
        "flags": [flags.tolist(), flag.tolist()],
        "strided": metrics.reduce_sum(wide).tolist() == (wide * ddp.get_world_size()).tolist(),
        "no samples": metrics.reduce_sum(0 if rank else 1.5),
        "no samples, tensor": float(metrics.reduce_sum(0 if rank else torch.tensor(1.5))),
        "nothing": metrics.reduce_sum(),
        "list": metrics.reduce_sum([1]),
        "text": attempt(lambda: metrics.reduce_sum("1")),
    }


def arrays() -> Any:
    rank, size = ddp.get_rank(), ddp.get_world_size()
    whole = np.arange(6).reshape(2, 3).T + rank
    small, large, half, flags, single, unsigned = metrics.reduce_sum(
        whole,
        np.array([2**62 // size], np.int64),
        np.array([0.5], np.float32),
        np.array([True, rank > 0]),
        np.array(rank),
        np.array([200 // size], np.uint8),
    )
    expected = sum(np.arange(6).reshape(2, 3).T + each for each in range(size))
    return {
        "small": bool((small == expected).all()) and small.dtype == whole.dtype,
        "argument": bool((whole == np.arange(6).reshape(2, 3).T + rank).all()),
        "large": int(large[0]) == 2**62 // size * size,  # more than a float64 holds
        "half": [half.tolist(), str(half.dtype)],
        "flags": flags.tolist(),
        "single": [single.tolist(), single.shape],
        "unsigned": [int(unsigned[0]) == 200 // size * size, str(unsigned.dtype)],
    }


def share(total: int) -> list[int]:
    return list(range(total))[ddp.get_rank() :: ddp.get_world_size()]


def cut(rows: Any, size: int) -> list[Any]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def gathering() -> Any:
    mine, few, one = share(11), share(2), share(1)  # on three ranks not each has of the few
    views = torch.arange(44, dtype=torch.float16).reshape(11, 4)
    numbers, boxes = metrics.gather_samples(
        mine, [{"row": views[i], "name": str(i), "array": np.full(i, i, np.int16)} for i in mine]
    )
    rows = [int(box["row"][0]) for box in boxes]
    tensors, numpys, lists, few_rows = metrics.gather_batches(
        cut(views[mine], 2),
        cut(np.asarray(mine, np.int32), 2),
        cut(mine, 2),
        cut(torch.tensor(few)[:, None], 2) if few else [],
    )
    return {
        "numbers": numbers == list(range(11)),
        "boxes": rows == list(range(0, 44, 4)),
        "dicts": [boxes[10]["name"], boxes[3]["array"].tolist(), str(boxes[3]["array"].dtype)],
        "storage": boxes[0]["row"].untyped_storage().nbytes(),
        "tensors": all(map(torch.equal, tensors, views.split(2))) and len(tensors) == 6,
        "type": [str(tensors[0].dtype), str(numpys[0].dtype)],
        "numpys": np.concatenate(numpys).tolist() == list(range(11)),
        "lists": lists == cut(list(range(11)), 2),
        "few": torch.cat(few_rows).tolist(),
        "one": metrics.gather_samples(one),
        "none": [metrics.gather_samples([]), metrics.gather_batches([])],
        "unequal": attempt(lambda: metrics.gather_samples([0] * (3 - ddp.get_rank())))[:52],
    }


def means() -> Any:
    rank = ddp.get_rank()
    whole, part, tensor = metrics.reduce_mean(rank, rank / 2, torch.tensor([rank, 1]))
    return [whole, part, tensor.tolist(), type(whole).__name__, metrics.reduce_mean(rank)]


class Computed:
    sum, count = 3.0, 2

    @property
    def avg(self) -> float:
        return self.sum / self.count


def meters() -> Any:
    rank = ddp.get_rank()
    loss = SimpleNamespace(sum=10.0 * rank, count=rank, avg=0.0)
    empty = SimpleNamespace(sum=0.0, count=0, avg=0.0)
    tensor = SimpleNamespace(sum=torch.tensor(2.0), count=4, avg=None)
    computed = Computed()
    metrics.reduce_meter(loss, empty, tensor, computed)
    averages = [loss.avg, empty.avg, float(tensor.avg), computed.avg]
    own = SimpleNamespace(sum=10.0 * rank, count=rank, avg=0.0, val=rank)
    shown = metrics.global_meter({"list": [own]})["list"][0]
    kept = [own.sum, own.val] == [10.0 * rank, rank]
    table = defaultdict(int, {"all": rank, f"of {rank}": 1})
    entries = metrics.reduce_entries(table)
    entries["missing"] += 1
    scores = SimpleNamespace(hits=[rank, 1], seen={"a": rank}, loss=float(rank), how={"a": rank})
    scores.last = deque([rank, 1], maxlen=3)
    copied = metrics.global_copy(scores, sums=("hits", "seen"), means=("loss", "how", "last"))
    kept = kept and [scores.hits, scores.loss] == [[rank, 1], float(rank)]
    copies = [copied.hits, copied.seen["a"], copied.loss, copied.how["a"], str(copied.last)]
    same = {"loss": [loss.sum, loss.count], "averages": averages, "shown": shown.avg, "kept": kept}
    return {**same, "copies": copies, "entries": entries, "table": len(table)}


def objects() -> Any:
    value = {"path": SHARED / "run", "ids": [1, 2]} if ddp.is_main_process() else None
    received = ddp.broadcast(value)
    return [str(received["path"] == SHARED / "run"), received["ids"]]


def sampling() -> Any:
    data = TensorDataset(torch.arange(10))
    kept = torch.get_rng_state()
    torch.manual_seed(100 + ddp.get_rank())  # a script may: the order must be one all the same
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler = ddp.distributed_sampler(data, shuffle=True)
        ddp.distributed_sampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=2, shuffle=sampler is None, sampler=sampler)
    epochs = []
    for epoch in range(2):
        ddp.begin_epoch(loader, epoch)
        epochs.append([int(i) for (batch,) in loader for i in batch])
    again = [[int(i) for (batch,) in ddp.new_pass(loader) for i in batch] for _ in range(2)]
    other = ddp.distributed_sampler(data, shuffle=True)
    other.set_epoch(epoch)
    torch.set_rng_state(kept)
    return {
        "epochs": epochs,
        "again": again,
        "beside": list(other),
        "in order": list(ddp.distributed_sampler(range(6), shuffle=False)),
        "dropped": list(ddp.distributed_sampler(data, shuffle=False, drop_last=True)),
        "warnings": [str(record.message) for record in caught],
        "unequal": attempt(lambda: ddp.distributed_sampler(range(6 + ddp.get_rank()), True))[:60],
    }


def unequal() -> Any:
    """A last batch with one sample more than two for each rank, then of one, then of a whole."""
    ranks = ddp.get_world_size()
    found = []
    for extra in (2 * ranks + 1, 1, 0):
        data = TensorDataset(torch.arange(2 * 4 * ranks + extra))
        sampler = ddp.distributed_sampler(data, shuffle=True, batch_size=4 * ranks)
        loader = DataLoader(data, 4, sampler=sampler)
        ddp.begin_epoch(loader, 1)
        parts = [part.tolist() for (part,) in loader]
        weights = [ddp.batch_weight(loader, number) for number in range(len(loader))]
        found.append({"parts": parts, "weights": weights, "length": len(loader)})
    return found


def orders() -> Any:
    """Each rank would draw an order of its own: what counts is rank 0's."""
    own = ddp.get_rank()
    found: dict[str, Any] = {}
    for length in (1, 7, 12):
        for cut in (False, True):
            shares = metrics.order_share(range(100 * own, 100 * own + length), drop_last=cut)
            found[f"{length} {cut}"] = [list(shares), len(shares)]
    drawn = RandomSampler(range(50), generator=torch.Generator().manual_seed(own))
    long = metrics.order_share(RandomSampler(range(9), replacement=True, num_samples=10**10))
    few = DataLoader(TensorDataset(torch.arange(9)), 2, sampler=long)
    loader = DataLoader(TensorDataset(torch.arange(50)), 2, sampler=metrics.order_share(drawn))
    mine = torch.Generator().manual_seed(own)
    dealt = metrics.share_batches(DataLoader(range(31), 12, shuffle=True, generator=mine))
    cut = [list(range(12)), list(range(12, 24)), [24, 25, 26]]
    given = metrics.share_batches(DataLoader(range(27), batch_sampler=cut))
    return {
        "given": [[b.tolist() for b in given], len(given)],
        "batches": [[b.tolist() for b in dealt] for _ in range(2)],
        "told": [len(dealt), dealt.batch_size, len(dealt.sampler)],
        "shares": found,
        "passes": [[i for (b,) in loader for i in b.tolist()] for _ in range(2)],
        "endless": [len(long), len(next(iter(few))[0])],
    }


def evaluation() -> Any:
    data, found = TensorDataset(torch.arange(7)), {}
    loader = DataLoader(data, 2, sampler=ddp.evaluation_share(data))
    older = DataLoader(data, 2, sampler=ddp.evaluation_sampler(data))
    for size in (1, 2, 3, 7, 10):
        dealt = DataLoader(data, size, sampler=ddp.evaluation_sampler(data, size))
        first = ddp.broadcast(next(iter(dealt), None))
        found[size] = [[b.tolist() for (b,) in dealt], len(dealt), first[0].tolist()]
    fed = DataLoader(data, 2, sampler=ddp.distributed_sampler(data, False, drop_last=True))
    return {
        "whole": [b.tolist() for (b,) in ddp.whole_loader(fed)],
        "other": [b.tolist() for (b,) in ddp.whole_loader(DataLoader(data, 2))],
        "shard": [int(i) for (b,) in loader for i in b],
        "batches": len(loader),
        "older": [int(i) for (b,) in older for i in b],
        "dealt": found,
    }


class Matrix:
    """Made when the first batch comes, as a confusion matrix often is."""

    def __init__(self) -> None:
        self.counts: Any = None

    def update(self, values: Any, like: Any) -> None:
        if self.counts is None:
            self.counts = np.zeros(5, np.int64) if like is np else torch.zeros(5, dtype=torch.int64)
        bins = torch.bincount(values, minlength=5)
        self.counts += bins.numpy() if like is np else bins


def missing() -> Any:
    """Two batches, so on three ranks one has none."""
    data, rank = TensorDataset(torch.tensor([0, 4, 4, 1])), ddp.get_rank()
    found = {}
    for like in (torch, np):
        matrix, total, weighed = Matrix(), 0.0, 0
        for (values,) in DataLoader(data, 2, sampler=ddp.evaluation_sampler(data, 2)):
            matrix.update(values, like)
            total += values.float().mean().item()
            weighed = weighed + values.sum()
        counts, whole, weighed = metrics.reduce_sum(matrix.counts, total, weighed)
        found[like.__name__] = [counts.tolist(), str(counts.dtype), whole, float(weighed)]
    rows = None if rank else torch.tensor([[True, False]])
    return {
        **found,
        "flags": [(r := metrics.reduce_sum(rows)).tolist(), str(r.dtype)],
        "number": metrics.reduce_sum(None if rank else 2.5, 1),
        "zero": metrics.reduce_sum(0 if rank else torch.tensor([0.5, float("nan")])).tolist()[0],
        "nobody": metrics.reduce_sum(None, 1),
    }


def batch_sizes() -> Any:
    return [attempt(lambda size=size: ddp.per_rank_batch_size(size)) for size in (12, 24)]


def shares_of_one_batch() -> Any:
    """Each rank made batches of its own: what counts is rank 0's, and no rank's is written to."""
    own, ranks = ddp.get_rank(), ddp.get_world_size()
    rows = torch.arange(12).view(6, 2) + 100 * own
    kept = rows.clone()
    first, flags = metrics.own_share(rows, rows % 2 == 0)
    column = metrics.own_share(rows.numpy().T[:, :, None], dim=1)
    _, (_, labels) = metrics.own_share(rows.T, (rows.T, torch.arange(6)), dim=1)
    uneven = torch.zeros(ranks + 1)
    try:
        metrics.own_share(uneven)
        stopped: Any = None
    except SystemExit as stop:
        stopped = stop.code
    return {
        "rows": first.tolist(),
        "flags": flags.tolist(),
        "columns": [type(column).__name__, column[0, :, 0].tolist()],
        "labels": labels.tolist(),
        "kept": bool((rows == kept).all()),
        "uneven": stopped,
        "other": attempt(lambda: metrics.own_share(torch.zeros(ranks * (own + 1)))).split(":")[0],
        "axes": attempt(lambda: metrics.own_share(rows, rows.view(-1))).split(":")[0],
        "flat": attempt(lambda: metrics.own_share(rows.view(-1), dim=1)).split(":")[0],
        "number": attempt(lambda: metrics.own_share(rows, 3)).split(":")[0],
        "computed": attempt(lambda: metrics.own_share(rows * torch.ones((), requires_grad=True))),
    }


def listed() -> Any:
    """A stream is read by one rank after the other."""
    return list(ddp.map_style(iter(range(3))))


def turns() -> Any:
    """With three ranks, the last one plays the first rank of a second node."""
    kept = os.environ["LOCAL_RANK"]
    if ddp.get_rank() == 2:
        os.environ["LOCAL_RANK"] = "0"
    with ddp.main_process_first():
        for _ in range(20_000 if ddp.get_rank() == 2 else 0):  # leave others time to be too early
            Path("turns.txt").read_text()
        with open("turns.txt", "a") as file:
            file.write(f"{ddp.get_rank()} ")
    ddp.barrier()
    os.environ["LOCAL_RANK"] = kept
    return Path("turns.txt").read_text().split()


def failed_turn() -> Any:
    def prepare() -> None:
        with ddp.main_process_first():
            if ddp.is_main_process():
                raise OSError("disk full")

    return [attempt(prepare), metrics.reduce_sum(1)]


def saving() -> Any:
    state = {"weight": torch.arange(3), "rank": ddp.get_rank()}
    ddp.save_on_main(state, SHARED / "model.pt")
    loaded = torch.load("model.pt", weights_only=True)
    failed = attempt(lambda: ddp.save_on_main(state, SHARED / "missing" / "model.pt"))
    files = sorted(path.name for path in SHARED.glob("model*"))
    return {
        "loaded": [loaded["weight"].tolist(), loaded["rank"]],
        "files": files,
        "failed": failed.split(":")[0],
        "in step": metrics.reduce_sum(1),
    }


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def fit(model: nn.Module, batches: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for features, target in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), target).backward()
        optimizer.step()


def training() -> Any:
    """N ranks against one process that takes the same global batches."""
    data = TensorDataset(torch.randn(24, 4), torch.randint(0, 2, (24,)))
    sampler = ddp.distributed_sampler(data, shuffle=False)
    model = ddp.wrap_model(network())
    fit(model, DataLoader(data, ddp.per_rank_batch_size(12), sampler=sampler))
    alone = network()
    fit(alone, DataLoader(data, 12))
    inner = ddp.unwrap(model)
    pairs = zip(inner.parameters(), alone.parameters(), strict=True)
    return {
        "difference": max(float((a - b).detach().abs().max()) for a, b in pairs),
        "wrapper": type(model).__name__,
        "keys": list(inner.state_dict()) == list(alone.state_dict()),
        "prefixed": list(ddp.without_module_prefix(model.state_dict())) == list(alone.state_dict()),
    }


def rank_counts() -> Any:
    """Rank r counts r things: rank 0 has none, and the smallest count allowed is of all ranks."""
    own = ddp.get_rank()
    numbers = [
        metrics.per_rank_count(own),
        metrics.per_rank_count(own, 2.5),
        metrics.per_rank_count(0, 9),
    ]
    mask = torch.tensor([True] * own + [False])
    tensors = [
        metrics.per_rank_count(mask.sum()),
        metrics.per_rank_count(mask.double().sum(), at_least=9),
    ]
    with torch.no_grad():
        evaluating = [metrics.per_rank_count(own), metrics.per_rank_count(mask.sum(), 2).item()]
    return {
        "numbers": numbers,
        "tensors": [[float(t), str(t.dtype)] for t in tensors],
        "evaluating": evaluating,
    }


def shared_out(targets: torch.Tensor, *, half: bool = False) -> Any:
    """A mean over the targets that are not -1: of this rank's, to be that of all."""
    torch.manual_seed(5)
    logits = torch.randn(6, 3, dtype=torch.float64).requires_grad_()
    ranks, own = ddp.get_world_size(), targets[2 * ddp.get_rank() :][:2]
    rows = logits[2 * ddp.get_rank() :][:2]
    loss = nn.functional.cross_entropy(rows.half() if half else rows, own, ignore_index=-1)
    shared = metrics.global_mean(loss, (own != -1).sum())
    shared.backward()
    expected = logits.detach().clone().requires_grad_()
    used = targets[: 2 * ranks]
    whole = nn.functional.cross_entropy(expected[: 2 * ranks], used, ignore_index=-1)
    whole.backward()
    ours, theirs = metrics.reduce_mean(logits.grad), expected.grad
    return {
        "value": [float(metrics.reduce_mean(shared)), float(whole)],
        "dtype": shared.dtype == loss.dtype,
        "gradient": float((ours - theirs).abs().max()),
        "own": [float(shared), float(logits.grad.abs().max())],
    }


def whole_batches() -> Any:
    """Two rows on each rank, beside three that all have, in tuples and dicts; and what has none."""
    rank, fixed = ddp.get_rank(), torch.arange(3.0)
    rows = torch.full((2, 1), float(rank), requires_grad=True)
    whole, same = metrics.whole_batch((rows, {"fixed": fixed}))
    (whole.sum() * (rank + 1)).backward()
    wrong = (rows, torch.ones(3, 1, requires_grad=True)), (rows, fixed + rank), (rows, "name")
    labels = metrics.whole_batch([torch.tensor([rank])])
    return {
        "rows": whole.flatten().tolist(),
        "fixed": same["fixed"] is fixed,
        "gradient": rows.grad.flatten().tolist() if rows.grad is not None else None,
        "labels": [one.tolist() for one in labels],
        "wrong": [attempt(lambda one=one: metrics.whole_batch(one)) for one in wrong],
    }


def asked(criterion: Any, targets: torch.Tensor) -> list[float]:
    """Its mean over what ranks have, put together, and that of one process."""
    ranks, rank = ddp.get_world_size(), ddp.get_rank()
    logits = torch.linspace(-1, 1, 18, dtype=torch.float64).view(6, 3) ** 2
    own = targets[2 * rank :][:2]
    shared = metrics.global_mean(
        criterion(logits[2 * rank :][:2], own), metrics.loss_terms(criterion, own)
    )
    whole = criterion(logits[: 2 * ranks], targets[: 2 * ranks])
    return [float(metrics.reduce_mean(shared)), float(whole)]


def criteria_asked() -> Any:
    """Cross entropies that have weights, or ignore targets, or neither; and another criterion."""
    weight = torch.tensor([0.2, 3, 1], dtype=torch.float64)
    classes, shares = torch.tensor([0, 1, 2, -100, 0, 0]), torch.eye(3).repeat(2, 1).double()
    return [
        asked(nn.CrossEntropyLoss(weight), classes),
        asked(nn.CrossEntropyLoss(weight, ignore_index=0, label_smoothing=0.1), classes.abs() % 4),
        asked(nn.CrossEntropyLoss(weight), shares),
        asked(nn.NLLLoss(weight), classes),
        asked(nn.CrossEntropyLoss(), classes),
        asked(nn.MultiMarginLoss(weight=weight), classes.clamp(min=0)),
    ]


def global_means() -> Any:
    """Rank 0 has one target, the others two, or one rank has none, or all."""
    mean, none = torch.tensor(1.5), torch.tensor([0, 1, 2, 0, 1, 2])
    few = torch.tensor([0, -1, 2, 0, 1, 2])
    first, all_ignored = torch.tensor([-1, -1, 2, 0, 1, 2]), torch.full((6,), -1)
    with torch.no_grad():
        evaluating = metrics.global_mean(mean, ddp.get_rank()) is mean
    return {
        "none ignored": shared_out(none),
        "few": shared_out(few),
        "rank without": shared_out(first),
        "all": str(shared_out(all_ignored)["own"]),
        "half": shared_out(few, half=True)["dtype"],
        "evaluating": evaluating,
        "asked": criteria_asked(),
    }


def wrapping() -> Any:
    def buffers(**options: Any) -> bool:
        model: Any = ddp.wrap_model(nn.BatchNorm1d(2), **options)
        return bool(model.will_sync_module_buffers())

    places: Any = nn.Linear(3, 1)
    places.register_buffer("of_words", torch.randn(4, 3).unsqueeze(0).transpose(0, 1))
    told = ddp.wrap_model(places)
    told(places.of_words)
    told(places.of_words)  # now the buffers are sent, without the weights
    synced = ddp.wrap_model(nn.BatchNorm1d(2), sync_batchnorm=True)
    frozen = nn.Linear(1, 1, bias=False).requires_grad_(False)
    nn.init.constant_(frozen.weight, ddp.get_rank())
    return {
        "frozen": ddp.wrap_model(frozen) is frozen and frozen.weight.item(),
        "buffers": [buffers(), buffers(broadcast_buffers=False)],
        "new name": buffers(forward_sync_buffers=False),
        "batch norm on the CPU": type(ddp.unwrap(synced)).__name__,
    }


def accumulation() -> Any:
    torch.manual_seed(0)
    model = ddp.wrap_model(nn.Linear(1, 1, bias=False))
    seen = []
    for sync in (False, True):
        with ddp.gradient_sync(model, sync):
            model(torch.tensor([[ddp.get_rank() + 1.0]])).sum().backward()
        seen.append(next(model.parameters()).grad.item())
    return seen


def kept_graphs() -> Any:
    """What .grad holds after a second backward, before and after it is averaged."""
    torch.manual_seed(0)
    model = ddp.wrap_model(nn.Linear(1, 1, bias=False))
    weight = next(model.parameters())
    out = model(torch.tensor([[ddp.get_rank() + 1.0]])).sum()
    seen = []
    for keep in (True, False):
        out.backward(retain_graph=keep)
        seen.append(weight.grad.item())
    ddp.average_gradients(model)
    ddp.average_gradients(model)  # means of means are what they are
    some = nn.Linear(1, 1)
    if ddp.get_rank() == 0:
        some.weight.grad = torch.ones(1, 1)
    ddp.average_gradients(some)
    wide = nn.Conv2d(2, 3, 2, bias=False)  # a gradient with the strides of channels_last
    own = torch.full((3, 2, 2, 2), float(ddp.get_rank()))
    wide.weight.grad = own.to(memory_format=torch.channels_last)
    ddp.average_gradients(wide)
    spread = wide.weight.grad.unique().tolist()
    return [*seen, weight.grad.item(), some.weight.grad.item(), some.bias.grad, spread]


def adversaries(given: bool) -> list[torch.Tensor]:
    """The weights after steps of two models that judge each other, with a gradient penalty."""
    torch.manual_seed(0)
    maker: Any = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6)).double()
    judge: Any = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    if given:
        maker = metrics.split_batches(ddp.wrap_model(maker))
        judge = metrics.split_batches(ddp.wrap_model(judge))
    steps = [torch.optim.SGD(one.parameters(), 0.01) for one in (maker, judge)]
    for rows in (8, 7, 9, 3, 1, 12):  # with three ranks shares differ, or there is none
        noise, real = torch.randn(rows, 5).double(), torch.randn(rows, 6).double()
        fake = maker(noise)
        mixed = (0.3 * real + 0.7 * fake.detach()).requires_grad_()
        (slope,) = torch.autograd.grad(judge(mixed).square().sum(), mixed, create_graph=True)
        said, of_fake = judge(real), judge(fake.detach())
        compared = (said @ of_fake.t()).logsumexp(1).mean() + (said - of_fake.mean(0)).abs().mean()
        (compared + (slope.norm(dim=1) - 1).square().mean()).backward()
        steps[1].step()
        maker.zero_grad()
        penalty = sum(one.square().sum() for one in ddp.unwrap(maker).parameters())
        (judge(fake).square().sum().sqrt() + 0.1 * penalty).backward()
        steps[0].step()
        judge.zero_grad()
    return [one.detach() for model in (maker, judge) for one in ddp.unwrap(model).parameters()]


class Along(nn.Module):
    """Keeps what its name says of its rows."""

    def __init__(self, made: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.made = nn.Linear(4, 4), made

    def forward(self, x: torch.Tensor, *rest: Any) -> Any:
        return self.made(self.layer(x))


def split(made: Callable[[torch.Tensor], Any], *given: Any) -> str:
    model = metrics.split_batches(ddp.wrap_model(Along(made)))
    return attempt(lambda: tuple(model(*given).shape))


def placed(made: Callable[[torch.Tensor], Any]) -> list[bool]:
    """Whether outputs and gradients, in the second step, are those of one process."""
    rows, found = torch.arange(48.0).view(12, 4).sin().double(), []
    for wrap in (metrics.split_batches, ddp.unwrap):
        torch.manual_seed(0)
        model = Along(made).double()
        model = wrap(ddp.wrap_model(model))
        for _ in range(2):
            model.zero_grad()
            outputs = [torch.as_tensor(part) for part in model(rows)]
            weighed = [part.flatten() @ torch.arange(part.numel()).double() for part in outputs]
            sum(weighed).square().backward()
        found.append([*outputs, *(one.grad for one in ddp.unwrap(model).parameters())])
    return [torch.allclose(a, b, rtol=1e-12) for a, b in zip(*found, strict=True)]


def heads_first(x: torch.Tensor) -> torch.Tensor:
    return x.view(len(x), 2, 2).permute(1, 0, 2).reshape(2 * len(x), 2)


def whole_models() -> Any:
    torch.manual_seed(0)
    rows = torch.randn(12, 4)
    noisy = metrics.split_batches(ddp.wrap_model(Along(lambda x: x * 0 + torch.rand_like(x))))
    kept, seen = torch.get_rng_state(), []
    for _ in range(2):
        seen.append(noisy(rows).detach())
    same = torch.equal(kept, torch.get_rng_state())
    apart = len({round(value, 6) for one in seen for value in one.flatten().tolist()})
    alike, one = adversaries(True), adversaries(False)
    return {
        "one process": [torch.allclose(a, b, rtol=1e-9) for a, b in zip(alike, one, strict=True)],
        "draws": [apart, same],
        "rows": split(lambda x: x, rows),
        "array": split(lambda x: x, rows, np.arange(12), [1, 2], None, "word"),
        "number": split(lambda x: x.mean(), rows),
        "table": split(lambda x: x.new_ones(6, 4) + 0 * x.sum(), rows),
        "placed": placed(
            lambda x: (
                x.view(len(x), 2, 2).transpose(0, 1),
                heads_first(x),
                x.reshape(2 * len(x), 2),
                torch.ones(6, 4, dtype=x.dtype) * 3,
                x.t()[None],
                x.detach().numpy(),
            )
        ),
        "neighbours": split(lambda x: x.cumsum(0), rows),
        "two lengths": split(lambda x: x, rows, rows[:5]),
        "own batch": split(lambda x: x, rows + ddp.get_rank()),
        "own order": split(lambda x: x, rows.roll(ddp.get_rank(), 0)),
        "evaluated": tuple(noisy.eval()(rows[:5]).shape),
    }


class Drawn(torch.utils.data.Dataset[Any]):
    """Samples with a word, and with a draw."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        return {"at": index, "word": f"w{index}", "draw": random.random() + torch.rand(1).item()}


def whole_loading() -> Any:
    def passes(loader: Any) -> Any:
        torch.manual_seed(5)
        random.seed(5)
        found = []
        for _ in range(2):
            for batch in loader:
                noise = torch.rand(1).item() if found else 0
                found.append((batch["at"].tolist(), batch["word"], noise))
        return found

    seen: list[int] = []

    class Counted(Drawn):
        def __getitem__(self, index: int) -> Any:
            seen.append(index)
            return super().__getitem__(index)

    loader = metrics.share_loading(DataLoader(Counted(), batch_size=4, shuffle=True))
    found = passes(loader)
    loaded = len(seen)
    draws = [value for batch in loader for value in batch["draw"].tolist()]
    plain = [(at, word) for at, word, _ in passes(DataLoader(Drawn(), batch_size=4, shuffle=True))]
    return {
        "batches": found,
        "first": [(at, word) for at, word, _ in found][:3] == plain[:3],
        "loaded": loaded,
        "draws": len(set(draws)),
        "length": [len(loader), loader.batch_size, isinstance(loader, DataLoader)],
    }


def forked() -> Any:
    kept = (random.getstate(), torch.get_rng_state())
    expected = torch.rand(1).item()
    random.setstate(kept[0])
    torch.set_rng_state(kept[1])
    ddp.fork_random_streams()
    found = {"kept": torch.rand(1).item() == expected, "draws": draws()}
    own = random.getstate()
    with ddp.same_draws():
        alike = draws()
    return {**found, "alike": alike, "own again": random.getstate() == own}


def streams() -> Any:
    """Draws in epochs 0, 3, and 3 again: with other draws in between, as after a resume."""
    sampler = ddp.distributed_sampler(range(10), shuffle=True)
    loader = DataLoader(TensorDataset(torch.arange(10)), sampler=sampler)
    kept = random.getstate()
    seen = []
    for epoch in (0, 3, 3):
        ddp.begin_epoch(loader, epoch)
        seen.append(draws())
    random.setstate(kept)
    expected = random.random()
    random.setstate(kept)
    ddp.begin_epoch(loader, 5)
    return {"epochs": seen, "kept": random.random() == expected}


def streams_of_ranks() -> Any:
    """What ranks draw after a checkpoint, again once it is read, and of one of another job."""
    ddp.fork_random_streams(3)
    file = io.BytesIO()
    torch.save(ddp.with_rank_streams({"rng": torch.get_rng_state()}), file)
    then = draws()
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.set_rng_state(saved["rng"])
        ddp.restore_rank_streams(saved)
        again, silent = draws(), not said
        torch.set_rng_state(saved["rng"])
        ddp.restore_rank_streams({**saved, "rank_streams": [1] * 7, "global_batch_size": [70]})
        other, told = draws(), [str(one.message) for one in said]
    return {"then": then, "again": again, "other": other, "silent": silent, "told": told}


def sharding() -> Any:
    """Three steps of a sharded model on shares of a batch, and of its copy on the whole batch."""
    rank, ranks = ddp.get_rank(), ddp.get_world_size()
    torch.manual_seed(rank)  # ready_to_shard makes them alike
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)).double().eval()
    ddp.ready_to_shard(net, sync_batchnorm=True)
    whole = copy.deepcopy(net)
    for layer in (net[0], net[2]):
        fully_shard(layer)
    fully_shard(net, reshard_after_forward=True)
    adam, one = (torch.optim.AdamW(each.parameters(), lr=0.1) for each in (net, whole))
    rows = torch.arange(16.0 * ranks, dtype=torch.float64).sin().view(2, 2 * ranks, 4)
    norms = []
    for step in range(3):
        for half, part in enumerate(rows):
            with ddp.gradient_sync(net, sync=half == 1):
                (net(part[rank::ranks]) - step).square().mean().backward()
            (whole(part) - step).square().mean().backward()
        for each in (net, whole):
            norm = nn.utils.clip_grad_norm_(each.parameters(), 1.0)
            norms.append(f"{ddp.whole_tensor(norm):.9f}")
        for optimizer in (adam, one):
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            net(rows[0])  # a forward between steps leaves no weights behind
    return {
        "norms": norms,
        "trained": _distance(ddp.unsharded(net, everywhere=True).state_dict(), whole.state_dict()),
        "moments": _distance(ddp.unsharded(adam, everywhere=True).state_dict(), one.state_dict()),
        "kept": [value is None for value in ddp.unsharded(net).state_dict().values()],
        "versions": ddp.unsharded(net).state_dict()._metadata == whole.state_dict()._metadata,
        "class": ddp.class_of(net).__name__,
        "pickled": _pickled(),
        "idle": _without_backwards(),
        "share": sum(p.to_local().numel() for p in net.parameters()),
        "loaded": _loaded(net, adam, whole, one),
        "evaluated": _evaluated(net, whole, rows.view(-1, 4)),
    }


class Tied(nn.Module):
    """Layers of all kinds: one in another, one that lists its weights, a weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(7, 4), nn.LSTM(4, 4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 7)
        self.out.weight = self.words.weight
        self.register_forward_hook(clamped)

    def forward(self, words: Any) -> Any:
        hidden = self.rnn(self.words(words))[0]
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.out(self.norm(hidden.flatten(0, 1)))


def clamped(_: Any, __: Any, out: Any) -> Any:
    return out.clamp(-0.2, 0.2)


def _pickled() -> list[bool]:
    """A sharded model's copy, as a file gives it back, beside the model as it was before."""
    torch.manual_seed(0)
    model, words = Tied(), torch.arange(6).view(3, 2)
    before, file = copy.deepcopy(model), io.BytesIO()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model, reshard_after_forward=True)
    for each in (model, before):
        each(words).sum().backward()
    torch.save(ddp.whole_model(model), file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    return [
        type(again) is Tied and again.training,
        torch.equal(again(words), before(words)),
        again.out.weight is again.words.weight,
        again.state_dict().keys() == before.state_dict().keys(),
        torch.equal(again.norm.running_mean, before.norm.running_mean),
    ]


def _without_backwards() -> list[Any]:
    """Samples of which all, some and none have a backward: beside a copy that takes all of them."""
    rank, ranks = ddp.get_rank(), ddp.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    whole = copy.deepcopy(net)
    fully_shard(net[0])
    fully_shard(net, reshard_after_forward=True)
    rows = torch.arange(4.0 * ranks, dtype=torch.float64).sin().view(ranks, 4)
    found = list[Any]()
    for goes in ([False] * ranks, [r == 0 for r in range(ranks)], [True] * ranks, [False] * ranks):
        with ddp.backward_on_all(net):
            loss = net(rows[rank]).square().sum()
            if goes[rank]:
                loss.backward()
        for row in rows[goes]:
            (whole(row).square().sum() / ranks).backward()
        pairs = list(zip(net.parameters(), whole.parameters(), strict=True))
        none = [one.grad is None for one, _ in pairs]
        gradients = [(ddp.whole_tensor(one.grad), two.grad) for one, two in pairs if not all(none)]
        found.append([none, max((_distance(*each) for each in gradients), default=0.0)])
    return found


def _distance(some: Any, others: Any) -> float:
    """The largest difference of two nests of tensors; infinite where one lacks what one has."""
    if isinstance(others, torch.Tensor):
        return float((some - others).abs().max()) if some.shape == others.shape else math.inf
    if isinstance(others, (dict, list)):
        keys = others if isinstance(others, dict) else range(len(others))
        if len(some) != len(others):
            return math.inf
        return max((_distance(some[key], others[key]) for key in keys), default=0.0)
    return 0.0 if some == others else math.inf


def _loaded(net: Any, adam: Any, whole: Any, one: Any) -> list[float]:
    """What a model and an optimizer have after they loaded a file of one process."""
    for owner, file in ((net, whole), (adam, one)):
        state = copy.deepcopy(file.state_dict())
        for value in state.values():
            for entry in [value] if isinstance(value, torch.Tensor) else []:
                entry.add_(1) if entry.is_floating_point() else None
        file.load_state_dict(state)
        ddp.unsharded(owner).load_state_dict(state)
    pairs = ((net, whole), (adam, one))
    return [
        _distance(ddp.unsharded(own, everywhere=True).state_dict(), file.state_dict())
        for own, file in pairs
    ]


def _evaluated(net: Any, whole: Any, rows: Any) -> Any:
    """Samples of which rank 0 has one more, and fewer than there are ranks."""
    ranks, seen = ddp.get_world_size(), dict[str, Any]()
    for name, count, size in (("uneven", 2 * ranks + 1, 1), ("few", ranks - 1, 1), ("one", 2, 2)):
        data = TensorDataset(rows[:count])
        share = ddp.evaluation_sampler(data, size if size > 1 else None)
        loader = ddp.even_batches(DataLoader(data, size, sampler=share), net)
        calls: list[int] = []
        hook = net.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        with torch.no_grad():
            outputs = [[net(row).sum(), net(2 * row).sum()] for (row,) in loader]
        hook.remove()
        total = metrics.reduce_sum(sum(float(first) for first, _ in outputs))
        seen[name] = [len(outputs), len(calls), abs(total - float(whole(rows[:count]).sum()))]
    return seen


def building() -> Any:
    """A model of which ranks > 0 have shapes until it is dealt out, and one that each rank has."""
    with ddp.built_on_main():
        net = _built()
    drawn, shapes = torch.rand(1).item(), [one.is_meta for one in net.parameters()]
    ddp.ready_to_shard(net)
    whole = _built()
    again, pairs = torch.rand(1).item(), zip(_held(net), _held(whole), strict=True)
    same = [torch.equal(a, b) and a.requires_grad == b.requires_grad for a, b in pairs]
    with ddp.built_on_main():
        net[0].loose = torch.ones(2)
    return {
        "shapes": shapes,
        "same": same,
        "tied": net[2].weight is net[0].weight and net[0].weight.marked,
        "drawn": drawn == again,
        "loose": attempt(lambda: ddp.ready_to_shard(net)),
    }


def _built() -> Any:
    torch.manual_seed(3)
    first, norm, last = nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 4, bias=False)
    last.weight = first.weight
    first.weight.marked = True
    norm.running_mean.normal_()
    norm.bias.requires_grad_(False)
    norm.register_buffer("own", torch.rand(2), persistent=False)
    return nn.Sequential(first, norm, last).double().to(ddp.local_device())


def _held(net: Any) -> list[Any]:
    return [*net.parameters(), *net.buffers()]


def scaling() -> Any:
    """Steps of a gradient scaler: in the second the last rank's shard alone is infinite."""
    net = nn.Linear(4, 2 * ddp.get_world_size())
    ddp.ready_to_shard(net)
    fully_shard(net)
    sgd, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu", 1024.0)
    seen = []
    for step in range(3):
        sgd.zero_grad()
        scaler.scale(net(torch.ones(2, 4)).sum()).backward()
        shard, before = net.weight.grad.to_local(), net.weight.to_local().detach().clone()
        if step == 1 and ddp.get_rank() == ddp.get_world_size() - 1:
            shard[0, 0] = math.inf
        scaler.unscale_(sgd)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(sgd)
        scaler.update()
        seen.append([scaler.get_scale(), not before.equal(net.weight.to_local())])
    return seen


def handed() -> Any:
    """What is found once there is a group: Lightning's script after `fit`."""
    return ddp.from_rank_zero({"found by": ddp.get_rank()})


def given_to_a_trainer() -> Any:
    """Loaders that Lightning's Trainer is given: it leaves alone those of a DistributedSampler."""
    own = torch.Generator().manual_seed(ddp.get_rank())
    seen: dict[str, Any] = {}
    for size in (2, 3, 7, 40):
        loader = metrics.share_evaluation(DataLoader(range(40), size))
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            batches = [b.tolist() for b in loader]
        seen[f"evaluated {size}"] = [batches, len(loader), [str(one.message) for one in given]]
    drawn = metrics.share_evaluation(DataLoader(range(40), 5, shuffle=True, generator=own))
    trained = metrics.share_training(DataLoader(range(42), 6, shuffle=True, generator=own))
    epochs: list[int] = []
    follows = RandomSampler(range(12))
    follows.set_epoch = epochs.append  # type: ignore[attr-defined]
    told = metrics.share_training(DataLoader(range(12), 6, sampler=follows))
    if ddp.get_world_size() > 1:
        told.sampler.set_epoch(3)  # type: ignore[attr-defined]
    return {
        **seen,
        "drawn": [b.tolist() for b in drawn],
        "trained": [[b.tolist() for b in trained], len(trained), trained.batch_size],
        "left alone": [isinstance(one.sampler, DistributedSampler) for one in (drawn, trained)],
        "epochs": sorted(set(epochs)),
        "too few": attempt(lambda: list(metrics.share_evaluation(DataLoader(range(1), 1)))),
        "no batches": attempt(
            lambda: metrics.share_evaluation(DataLoader(range(4), batch_size=None))
        ),
    }


CHECKS = (
    identity,
    draws,
    notices,
    sums,
    arrays,
    gathering,
    means,
    meters,
    objects,
    sampling,
    orders,
    evaluation,
    missing,
    batch_sizes,
    shares_of_one_batch,
    listed,
    turns,
    failed_turn,
    saving,
    training,
    wrapping,
    rank_counts,
    global_means,
    whole_batches,
    accumulation,
    kept_graphs,
    whole_models,
    whole_loading,
    forked,
    streams,
    streams_of_ranks,
    unequal,
    sharding,
    scaling,
    building,
    handed,
    given_to_a_trainer,
)


def after() -> Any:
    return {
        "main": ddp.is_main_process(),
        "distributed": ddp.is_distributed(),
        "collective": attempt(lambda: metrics.reduce_sum(1)),
    }


def main() -> None:
    if "--seeded" in sys.argv:
        random.seed(7)
        np.random.seed(7)
        torch.manual_seed(7)
    seen = {"before": [ddp.get_rank(), ddp.get_world_size(), attempt(ddp.barrier)]}
    try:
        with ddp.distributed_session(timeout=timedelta(seconds=30)):
            seen |= {check.__name__: check() for check in CHECKS}
            sys.exit()
    except SystemExit:
        seen["after"] = after()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
