"""What a batch consists of: a digest for each sample, and its index in the data set beneath."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from ddpify.verify.observer.signature import raw_bytes, whole

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def underlying(dataset: Any, index: Any) -> Any:
    """The index through nested Subsets, as an int where it is a number, else its text."""
    while isinstance(dataset, Subset):
        index, dataset = dataset.indices[index], dataset.dataset
    return int(index) if hasattr(index, "__index__") else repr(index)


def innermost(dataset: Any) -> Any:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def count(batch: Any) -> int:
    """The number of samples, by the first tensor that is found; 1 if there is none."""
    return next((len(one) for one in _tensors(batch) if one.ndim), 1)


def width(batch: Any, samples: int) -> int:
    """The bytes that each sample has in a batch of so many."""
    rows = [one for one in _tensors(batch) if one.ndim and len(one) == samples]
    return sum(one.element_size() * one[0].numel() for one in rows)


def digests(batch: Any, samples: int) -> list[str]:
    """One for each sample, of its part of everything that has a part for each."""
    found = [hashlib.blake2b(digest_size=8) for _ in range(samples)]
    if not _feed(batch, found):
        text = _text(batch)
        for sample in found:
            sample.update(text)
    return [sample.hexdigest() for sample in found]


def digest(item: Any) -> str:
    """Of one item that is not a batch."""
    known = hashlib.blake2b(digest_size=8)
    _feed_one(item, known)
    return known.hexdigest()


def _feed(batch: Any, samples: Sequence[Any], outermost: bool = True) -> bool:
    """Whether anything in ``batch`` had a part for each of the samples."""
    tensor = _as_tensor(batch)
    if tensor is not None:
        return _has_rows(tensor, samples) and _feed_rows(tensor, samples)
    if isinstance(batch, dict):
        return any([_feed(value, samples, False) for value in batch.values()])
    if not isinstance(batch, (list, tuple)):
        return False
    if not _one_for_each(batch, samples, outermost):
        return any([_feed(value, samples, False) for value in batch])
    for value, sample in zip(batch, samples, strict=True):
        _feed_one(value, sample)
    return True


def _one_for_each(batch: Sequence[Any], samples: Sequence[Any], outermost: bool) -> bool:
    """Whether a list has an element for each sample (texts, boxes) rather than the fields."""
    if len(batch) != len(samples):
        return False
    if all(isinstance(value, dict) for value in batch):
        return True
    if outermost and any(isinstance(value, (list, tuple, dict)) for value in batch):
        return False
    tensors = [_as_tensor(value) for value in batch]
    return not any(tensor is not None and _has_rows(tensor, samples) for tensor in tensors)


def _has_rows(tensor: Tensor, samples: Sequence[Any]) -> bool:
    return bool(tensor.ndim) and len(tensor) == len(samples)


def _feed_rows(tensor: Tensor, samples: Sequence[Any]) -> bool:
    content = memoryview(raw_bytes(tensor))
    size = len(content) // len(samples)
    for number, sample in enumerate(samples):
        sample.update(content[number * size : (number + 1) * size])
    return True


def _feed_one(item: Any, sample: Any) -> None:
    tensor = _as_tensor(item)
    if tensor is not None:
        sample.update(raw_bytes(tensor))
    elif isinstance(item, (dict, list, tuple)):
        for value in item.values() if isinstance(item, dict) else item:
            _feed_one(value, sample)
    else:
        sample.update(_text(item))


def _text(item: Any) -> bytes:
    return _ADDRESS.sub("", repr(item)).encode()


def _tensors(batch: Any) -> Iterable[Tensor]:
    tensor = _as_tensor(batch)
    if tensor is not None:
        yield tensor
    elif isinstance(batch, (dict, list, tuple)):
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from _tensors(value)


def _as_tensor(item: Any) -> Tensor | None:
    """A dense tensor on the CPU; numpy's arrays are known by their interface."""
    if isinstance(item, Tensor):
        return whole(item).cpu()
    if hasattr(item, "__array_interface__") and item.dtype.kind in "biuf":
        return _from_numpy(item)
    return None


def _from_numpy(array: Any) -> Tensor | None:
    try:
        return torch.from_numpy(array.copy())
    except TypeError:  # a type that torch does not have
        return None
