"""Watches DataLoaders: which samples are behind every batch, when the script gets it."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import BatchSampler, DistributedSampler, default_collate
from torch.utils.data import dataloader as loaders

from ddpify.verify.observer import contents
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.record import Recorder

_SHARES = ("_BatchShare", "_RowsOf")  # of the helpers: each rank gets its part of every batch


@dataclass(frozen=True)
class Batch:
    """The batch handed out last: ``place`` batches of the loader's ``passed``-th pass before it."""

    passed: int
    place: int
    samples: tuple[int | str, ...]
    grad: bool


class LoaderWatch:
    """``overfit`` is the number of samples that may be drawn while training, 0 for all.

    Indices are taken where the loader asks its sampler and handed out again in order, which
    holds with workers that prefetch too.
    """

    def __init__(self, recorder: Recorder, overfit: int) -> None:
        self.current_pass = 0  # of the loader whose iteration was begun last
        self.batch: Batch | None = None  # none while a loader works, and after its last
        self._recorder = recorder
        self._overfit = overfit
        self._seen = 0
        self._known: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()

    def start(self, patcher: Patcher) -> None:
        iterator = loaders._BaseDataLoaderIter
        patcher.replace(iterator, "__init__", self._watch_init)
        patcher.replace(iterator, "_next_index", self._watch_index)
        patcher.replace(iterator, "__next__", self._watch_next)
        for kind in (loaders._SingleProcessDataLoaderIter, loaders._MultiProcessingDataLoaderIter):
            if "_reset" in vars(kind):
                patcher.replace(kind, "_reset", self._watch_reset)

    def _begin(self, iterator: Any, loader: Any) -> None:
        if loader not in self._known:
            self._known[loader] = self._seen, 0
            self._recorder.note("loader", number=self._seen, **_describe(loader))
            self._seen += 1
        number, passed = self._known[loader]
        self._known[loader] = number, passed + 1
        self.current_pass = passed
        self.batch = None
        if type(loader.batch_sampler).__name__ in _SHARES:  # its sampler may say that it is dealt
            self._recorder.note("shuffle", loader=number, seed=None, epoch=passed)
        elif isinstance(loader.sampler, DistributedSampler) and _shuffles(loader.sampler):
            seed, epoch = loader.sampler.seed, loader.sampler.epoch
            self._recorder.note("shuffle", loader=number, seed=seed, epoch=epoch)
        iterator._observed = {"loader": number, "passed": passed}
        iterator._observed_indices = deque()
        iterator._observed_batches = 0

    def _watch_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(iterator: Any, loader: Any) -> None:
            self._begin(iterator, loader)
            original(iterator, loader)

        return init

    def _watch_reset(self, original: Callable[..., None]) -> Callable[..., None]:
        """Persistent workers keep their iterator and reset it for each pass."""

        @functools.wraps(original)
        def reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            if not first_iter:
                self._begin(iterator, loader)
            original(iterator, loader, first_iter)

        return reset

    def _watch_index(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def next_index(iterator: Any) -> Any:
            indices = self._limited(original(iterator))
            iterator._observed_indices.append(indices)
            return indices

        return next_index

    def _limited(self, indices: Any) -> Any:
        if not self._overfit or not torch.is_grad_enabled():
            return indices
        if isinstance(indices, (list, tuple)):
            return [self._limited(index) for index in indices]
        return int(indices) % self._overfit if hasattr(indices, "__index__") else indices

    def _watch_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def next_batch(iterator: Any) -> Any:
            grad = torch.is_grad_enabled()
            self.batch = None
            _watch_collate(iterator, self._recorder)
            try:
                batch = original(iterator)
            except StopIteration:
                self._recorder.note("end", **iterator._observed)
                raise
            with self._recorder.own():
                fetched = {**_identify(iterator, batch), "last": _is_last(iterator)}
            self._recorder.note("fetch", **iterator._observed, **fetched, grad=grad)
            place, passed = iterator._observed_batches, iterator._observed["passed"]
            self.batch = Batch(passed, place, tuple(fetched["samples"]), grad)
            iterator._observed_batches += 1
            return batch

        return next_batch


def _shuffles(sampler: Any) -> bool:
    """Subclasses may leave out what DistributedSampler sets."""
    return bool(getattr(sampler, "shuffle", False))


def _watch_collate(iterator: Any, recorder: Recorder) -> None:
    """Look at the samples before a function of the script's puts them together.

    Where workers do that, nobody sees them.
    """
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    iterator._observed_alone = ()
    if fetcher is None or not iterator._auto_collation or hasattr(fetcher, "_observed"):
        return
    fetcher._observed, collate = True, fetcher.collate_fn
    if collate is default_collate:
        return

    @functools.wraps(collate, updated=())
    def collated(samples: Any) -> Any:
        with recorder.own():
            each = samples if isinstance(samples, list) else ()
            iterator._observed_alone = [contents.digest(one) for one in each]
        return collate(samples)

    fetcher.collate_fn = collated


def _identify(iterator: Any, batch: Any) -> dict[str, Any]:
    asked = iterator._observed_indices
    indices = asked.popleft() if asked else None
    if iterator._dataset_kind == loaders._DatasetKind.Iterable or indices is None:
        digests = contents.digests(batch, contents.count(batch))
        return {"samples": digests, "contents": digests}
    if not isinstance(indices, (list, tuple)):
        sample = contents.underlying(iterator._dataset, indices)
        return {"samples": [sample], "contents": [contents.digest(batch)]}
    samples = [contents.underlying(iterator._dataset, index) for index in indices]
    return {
        "samples": samples,
        "contents": contents.digests(batch, len(samples)),
        "alone": list(iterator._observed_alone),
        "width": contents.width(batch, len(samples)),
    }


def _is_last(iterator: Any) -> bool:
    """Lightning counts batches, and does not ask for one more than there are."""
    try:
        return bool(len(iterator) == iterator._observed_batches + 1)
    except Exception:  # of a sampler of the script's
        return False


def _describe(loader: Any) -> dict[str, Any]:
    own_batches = (
        loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler
    )
    sampler = loader.batch_sampler if own_batches else loader.sampler
    batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    return {
        "dataset": type(contents.innermost(loader.dataset)).__name__,
        "sampler": type(sampler).__name__,
        "samples": length(loader.dataset),
        "batch": batch if isinstance(batch, int) else 0,
    }


def length(dataset: Any) -> int:
    """How many there are; 0 where that is not said."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return 0
