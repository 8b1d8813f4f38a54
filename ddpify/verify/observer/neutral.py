"""Takes away, on request, what makes one process and many differ legitimately."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data._utils import fetch

from ddpify.verify.observer import streams
from ddpify.verify.observer.contents import underlying
from ddpify.verify.observer.loaders import LoaderWatch
from ddpify.verify.observer.noise import DROPOUTS
from ddpify.verify.observer.patching import Patcher


def neutralise_dropout(patcher: Patcher) -> None:
    """Dropout becomes the identity and draws nothing, in modules, functions and recurrent nets."""
    for name in DROPOUTS:
        patcher.replace(F, name, _identity)
    patcher.replace(F, "scaled_dot_product_attention", _without_dropout)
    patcher.replace(nn.RNNBase, "__init__", _made_without_dropout)


def neutralise_batch_norm(patcher: Patcher) -> None:
    """Each sample is normalised by itself: no batch, so no split of it, matters.

    Running statistics stay as they are. Where a sample has one element they are what is used.
    """
    patcher.replace(F, "batch_norm", _by_sample)
    patcher.replace(nn.SyncBatchNorm, "forward", _like_batch_norm)


def neutralise_augmentation(patcher: Patcher, loaders: LoaderWatch) -> None:
    """Each sample draws noise that depends on its index and the pass alone, in any process.

    What the samples of a batch draw together (in ``collate_fn``) stays as it is.
    """
    Augmentation(loaders).start(patcher)


class Augmentation:
    def __init__(self, loaders: LoaderWatch) -> None:
        self._loaders = loaders
        self._process = os.getpid()
        self._made = 0  # fetchers in this worker: it makes one for each pass it works on

    def start(self, patcher: Patcher) -> None:
        patcher.replace(fetch._MapDatasetFetcher, "__init__", self._knowing_the_pass)
        patcher.replace(fetch._MapDatasetFetcher, "fetch", self._seeded)

    def _knowing_the_pass(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(fetcher: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
            original(fetcher, dataset, *args, **kwargs)
            later = self._made if os.getpid() != self._process else 0
            self._made += os.getpid() != self._process
            fetcher._observed_pass = self._loaders.current_pass + later

        return init

    def _seeded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(fetcher: Any, indices: Any) -> Any:
            number = getattr(fetcher, "_observed_pass", 0)
            drawn = _Drawn(fetcher.dataset, number)
            with streams.kept():
                if not fetcher.auto_collation:
                    return drawn[indices]
                samples = [drawn[index] for index in indices]
            return fetcher.collate_fn(samples)

        return load


class _Drawn:
    """A data set whose streams stand at a place of the sample's own when it is read."""

    def __init__(self, dataset: Any, number: int) -> None:
        self._dataset = dataset
        self._number = number
        self._many = getattr(dataset, "__getitems__", None)

    def __getitem__(self, index: Any) -> Any:
        streams.seed((underlying(self._dataset, index), self._number))
        return self._many([index])[0] if self._many else self._dataset[index]


def _identity(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def keep(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return input

    return keep


def _made_without_dropout(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(module: Any, *args: Any, **kwargs: Any) -> None:
        original(module, *args, **kwargs)
        module.dropout = 0.0

    return init


def _by_sample(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def normalise(
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if input.dim() > 1 and input[:1].numel() > 1:
            return F.group_norm(input, 1, weight, bias, eps)
        keep = training and running_mean is None
        return original(input, running_mean, running_var, weight, bias, keep, momentum, eps)

    return normalise


def _like_batch_norm(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def forward(module: Any, input: Tensor) -> Tensor:
        running = module.running_mean, module.running_var
        return F.batch_norm(input, *running, module.weight, module.bias, eps=module.eps)

    return forward


def _without_dropout(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        return original(query, key, value, attn_mask, 0.0, *args, **kwargs)

    return attend
