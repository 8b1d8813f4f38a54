"""The order and size of batches: in one process what N ranks together would get."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from ddpify.verify.observer.patching import Patcher


def read_shuffles(file: Path | None) -> list[Shuffles]:
    """What ``file`` (JSON) tells of the ranks; nothing if there is none."""
    told = json.loads(file.read_text()) if file else []
    return [Shuffles(samples, seed, tuple(epochs), *rest) for samples, seed, epochs, *rest in told]


def interleaved(shards: list[DistributedSampler[Any]]) -> Iterator[Any]:
    """One sample of each rank, then the next of each: N ranks' batches are one global batch."""
    yield from itertools.chain.from_iterable(zip(*shards, strict=True))


@dataclass(frozen=True)
class Shuffles:
    """How ranks shuffle one loader of so many samples: ``epochs`` are those of its passes.

    Without a seed they share what the script's own sampler draws. Not ``padded``: a short last
    batch has none of its samples twice.
    """

    samples: int
    seed: int | None
    epochs: tuple[int, ...] = ()
    padded: bool = True

    def epoch(self, passed: int) -> int:
        """Beyond what is told the ones that should follow."""
        known = len(self.epochs)
        if passed < known:
            return self.epochs[passed]
        return self.epochs[-1] + passed - known + 1 if known else passed


@dataclass
class _Order:
    """What a RandomSampler is to yield; ``shuffles`` is known from its first pass on."""

    seed: int  # the script's, when the sampler was made
    drop_last: bool = False
    batch: int = 1
    passed: int = 0
    shuffles: Shuffles | None = None


class _Whole(DistributedSampler[Any]):
    """The order that ranks share: one replica, and not one whose parts are asked for."""


class GlobalOrder:
    """Lets samplers yield, pass by pass, the order that ``ranks`` DistributedSamplers would.

    A plain RandomSampler becomes what a migration makes of it, with DistributedSampler's padding
    or, for a loader with drop_last, its cut; draws from the random state stay what they were. A
    DistributedSampler that has one replica yields what it would for ``ranks``. ``known`` are the
    ranks' shuffled loaders in order of use; one that is not among them shuffles by the script's
    seed, from epoch 0 on.
    """

    def __init__(self, ranks: int, known: list[Shuffles]) -> None:
        self._ranks = ranks
        self._known = list(known)
        self._orders: WeakKeyDictionary[Any, _Order] = WeakKeyDictionary()

    def start(self, patcher: Patcher) -> None:
        patcher.replace(RandomSampler, "__init__", self._sampler_made)
        patcher.replace(DataLoader, "__init__", self._loader_made)
        for kind, shards in (
            (RandomSampler, self._shards_of_random),
            (DistributedSampler, self._shards_of_distributed),
        ):
            patcher.replace(kind, "__iter__", functools.partial(self._iterating, shards))
            patcher.replace(kind, "__len__", functools.partial(self._measuring, shards))

    def _sampler_made(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(sampler: Any, *args: Any, **kwargs: Any) -> None:
            original(sampler, *args, **kwargs)
            self._orders[sampler] = _Order(torch.initial_seed() % 2**31)

        return init

    def _loader_made(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            given = kwargs.get("sampler", args[3] if len(args) > 3 else None)
            batches = kwargs.get("batch_sampler", args[4] if len(args) > 4 else None)
            own = given if given is not None else getattr(batches, "sampler", None)
            if isinstance(own, RandomSampler):
                self._orders.pop(own, None)  # ranks share the order that it draws itself
            elif own is None and loader.sampler in self._orders:
                order = self._orders[loader.sampler]
                order.drop_last, order.batch = loader.drop_last, loader.batch_size or 1

        return init

    def _iterating(self, shards: Callable[..., Any], original: Callable[..., Any]) -> Any:
        @functools.wraps(original)
        def iterate(sampler: Any) -> Iterator[Any]:
            parts = shards(sampler)
            if not parts:
                yield from self._padded(sampler, original)
                return
            for _ in original(sampler):  # draws what the script would have drawn
                pass
            if sampler in self._orders:
                self._orders[sampler].passed += 1
            yield from interleaved(parts)

        return iterate

    def _padded(self, sampler: Any, original: Callable[..., Any]) -> Iterator[Any]:
        """Where ranks share each batch, with what the last, shorter one repeats of its own."""
        order = self._orders.get(sampler)
        known = order.shuffles if order is not None and torch.is_grad_enabled() else None
        if order is None or known is None or not known.epochs or order.drop_last:
            yield from original(sampler)
            return
        indices = list(original(sampler))
        last = indices[len(indices) - len(indices) % order.batch :]
        more = -len(last) % self._ranks if len(last) < len(indices) else 0
        yield from itertools.chain(indices, last[:more])

    def _measuring(self, shards: Callable[..., Any], original: Callable[..., int]) -> Any:
        @functools.wraps(original)
        def length(sampler: Any) -> int:
            parts = shards(sampler, taken=False)
            return sum(map(len, parts)) if parts else original(sampler)

        return length

    def _shards_of_random(self, sampler: Any, taken: bool = True) -> list[DistributedSampler[Any]]:
        """None where the order is its own; not ``taken`` by a loader that is only measured."""
        order = self._orders.get(sampler)
        if type(sampler) is not RandomSampler or order is None:
            return []
        if sampler.replacement or sampler._num_samples is not None or not torch.is_grad_enabled():
            return []
        shuffles = order.shuffles or self._next(len(sampler.data_source), order, taken)
        order.shuffles = shuffles if taken else order.shuffles
        if shuffles.seed is None:
            return []
        epoch = shuffles.epoch(order.passed)
        if not shuffles.padded:
            data: Any = sampler.data_source
            whole = _Whole(data, 1, 0, seed=shuffles.seed)
            whole.set_epoch(epoch)
            return [whole]
        how = {"seed": shuffles.seed, "drop_last": order.drop_last}
        return self._shards(sampler.data_source, epoch, **how)

    def _next(self, samples: int, order: _Order, taken: bool) -> Shuffles:
        """What is told of it; else what a migration makes of it: a short last batch unequally."""
        for place, shuffles in enumerate(self._known):
            if shuffles.samples == samples:
                return self._known.pop(place) if taken else shuffles
        return Shuffles(samples, order.seed, padded=samples % order.batch < 2 * self._ranks)

    def _shards_of_distributed(
        self, sampler: Any, taken: bool = True
    ) -> list[DistributedSampler[Any]]:
        if type(sampler) is not DistributedSampler or sampler.num_replicas != 1:
            return []
        how = {name: getattr(sampler, name) for name in ("seed", "shuffle", "drop_last")}
        return self._shards(sampler.dataset, sampler.epoch, **how)

    def _shards(self, data: Any, epoch: int, **how: Any) -> list[DistributedSampler[Any]]:
        if self._ranks == 1:
            return []
        parts: list[DistributedSampler[Any]] = [
            DistributedSampler(data, self._ranks, rank, **how) for rank in range(self._ranks)
        ]
        for part in parts:
            part.set_epoch(epoch)
        return parts


class EvaluationOrder:
    """Shuffles without gradients: one order, in one process and on every rank.

    The stream it is drawn from stands elsewhere: a DistributedSampler does not draw from it. The
    n-th such pass over as many samples has the same order everywhere. So it is with gradients where
    ``trainer`` says that a Trainer trains: Lightning seeds anew on ranks, and in one process not.
    """

    def __init__(self, trainer: Callable[[], bool]) -> None:
        self._trainer = trainer
        self._passes: Counter[tuple[int, bool]] = Counter()

    def start(self, patcher: Patcher) -> None:
        patcher.replace(RandomSampler, "__iter__", self._iterating)

    def _iterating(self, original: Callable[..., Any]) -> Any:
        @functools.wraps(original)
        def iterate(sampler: Any) -> Iterator[Any]:
            training = torch.is_grad_enabled()
            own = sampler.replacement or sampler._num_samples is not None
            if own or (training and not self._trainer()):
                yield from original(sampler)
                return
            for _ in original(sampler):  # draws what the script would have drawn
                pass
            kind = len(sampler.data_source), training
            stream = torch.Generator().manual_seed(self._passes[kind])
            self._passes[kind] += 1
            yield from torch.randperm(kind[0], generator=stream).tolist()

        return iterate


class BatchFactor:
    """Multiplies the batch size of every DataLoader, and of every BatchSampler made by hand."""

    def __init__(self, factor: int) -> None:
        self._factor = factor
        self._inside = False  # the loader makes its BatchSampler with the size it was given

    def start(self, patcher: Patcher) -> None:
        for kind in (DataLoader, BatchSampler):
            patcher.replace(kind, "__init__", self._made)

    def _made(self, original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def init(*args: Any, **kwargs: Any) -> None:
            call = signature.bind(*args, **kwargs)
            call.apply_defaults()
            if self._inside:
                return original(*args, **kwargs)
            size = call.arguments["batch_size"]
            if call.arguments.get("batch_sampler") is None and size is not None:
                call.arguments["batch_size"] = size * self._factor
            self._inside = True
            try:
                return original(*call.args, **call.kwargs)
            finally:
                self._inside = False

        return init
