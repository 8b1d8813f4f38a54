"""Counts what makes runs differ legitimately: dropout, batch statistics, augmentation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data._utils import fetch

from ddpify.verify.observer import streams
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.record import Recorder

DROPOUTS = """
    dropout alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d
""".split()


class Noise:
    """How often each was met while gradients were enabled.

    To be started before anything is neutralised: what is neutral never reaches the counters.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._dropout = 0
        self._batchnorm = 0

    def counts(self) -> tuple[int, int]:
        return self._dropout, self._batchnorm

    def start(self, patcher: Patcher) -> None:
        for name in DROPOUTS:
            patcher.replace(F, name, self._count_dropout)
        patcher.replace(F, "scaled_dot_product_attention", self._count_attention)
        patcher.replace(F, "batch_norm", self._count_batch_norm)
        for kind in (nn.RNN, nn.LSTM, nn.GRU):
            patcher.before(kind, "forward", self._recur)
        for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            patcher.replace(fetcher, "fetch", self._count_augmentation)

    def _training(self) -> bool:
        return torch.is_grad_enabled() and not self._recorder.quiet

    def _count_dropout(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        default = original.__name__ not in ("alpha_dropout", "feature_alpha_dropout")

        @functools.wraps(original)
        def drop(
            input: Tensor,
            p: float = 0.5,
            training: bool = default,
            inplace: bool = False,
        ) -> Tensor:
            self._dropout += training and p > 0 and self._training()
            return original(input, p, training, inplace)

        return drop

    def _count_attention(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
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
            self._dropout += dropout_p > 0 and self._training()
            return original(query, key, value, attn_mask, dropout_p, *args, **kwargs)

        return attend

    def _count_batch_norm(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(original)
        def normalise(
            input: Tensor,
            running_mean: Tensor | None,
            running_var: Tensor | None,
            weight: Tensor | None = None,
            bias: Tensor | None = None,
            training: bool = False,
            *args: Any,
            **kwargs: Any,
        ) -> Tensor:
            self._batchnorm += training and self._training()
            return original(
                input, running_mean, running_var, weight, bias, training, *args, **kwargs
            )

        return normalise

    def _recur(self, module: Any, *_: Any, **__: Any) -> None:
        between = module.training and module.dropout > 0 and module.num_layers > 1
        self._dropout += between and self._training()

    def _count_augmentation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Whether a stream is elsewhere after a batch was loaded; noted also by workers."""

        @functools.wraps(original)
        def load(fetcher: Any, indices: Any) -> Any:
            if not self._training():
                return original(fetcher, indices)
            before = self._states()
            batch = original(fetcher, indices)
            if before != self._states():
                self._recorder.note_anywhere("augmentation")
            return batch

        return load

    def _states(self) -> dict[str, str]:
        with self._recorder.own():
            return streams.digests()
