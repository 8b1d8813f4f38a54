"""Changes a run so that one process and many can be compared number by number.

Nothing here is on unless observe.py is asked for it; the short timeout always is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

_SINGLE, _DOUBLE = torch.float32, torch.float64  # before float64() renames the first


def shuffle_like_ranks(ranks: int, first_epoch: int) -> None:
    """Let every plain RandomSampler yield, pass by pass, the order DistributedSampler would.

    The order is that of all ``ranks`` together, with DistributedSampler's padding or, for a
    loader with drop_last, its cut. Draws from the random state stay what they were.
    """
    sampler: Any = RandomSampler
    init, iterate, length = sampler.__init__, sampler.__iter__, sampler.__len__
    build: Any = DataLoader.__init__

    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._observed = {"seed": torch.initial_seed() % 2**31, "drop_last": False}
        self._observed_passes = itertools.count(first_epoch)

    @functools.wraps(build)
    def construct_loader(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        if type(self.sampler) is RandomSampler:
            observed: Any = self.sampler
            observed._observed["drop_last"] = self.drop_last

    def shards(self: Any) -> list[DistributedSampler[Any]]:
        data = self.data_source
        return [DistributedSampler(data, ranks, rank, **self._observed) for rank in range(ranks)]

    def global_order(self: Any) -> Iterator[int]:
        if not _plain(self):
            yield from iterate(self)
            return
        for _ in iterate(self):  # draws what the script would have drawn
            pass
        parts = shards(self)
        epoch = next(self._observed_passes)
        for part in parts:
            part.set_epoch(epoch)
        yield from itertools.chain.from_iterable(zip(*parts, strict=True))

    def global_length(self: Any) -> int:
        return sum(map(len, shards(self))) if _plain(self) else int(length(self))

    sampler.__init__, sampler.__iter__, sampler.__len__ = construct, global_order, global_length
    setattr(DataLoader, "__init__", construct_loader)  # noqa: B010


def _plain(sampler: Any) -> bool:
    return not sampler.replacement and sampler._num_samples is None


def compute_in_float64() -> None:
    """Make float32 a second name of float64, in Python as far as a script can reach."""
    torch.storage._storage_type_to_dtype_map()  # cached under the true names
    torch.set_default_dtype(_DOUBLE)
    for name in ("float32", "float"):
        setattr(torch, name, _DOUBLE)
    for owner, name, value in (
        (Tensor, "float", Tensor.double),
        (torch, "FloatTensor", torch.DoubleTensor),
    ):
        setattr(owner, name, value)
    for name in ("tensor", "as_tensor", "asarray", "from_numpy", "frombuffer"):
        _replace(torch, name, _doubled)


def neutralise_dropout() -> None:
    """Dropout becomes the identity and draws nothing, in modules, functions and recurrent nets."""
    kinds = ("dropout", "alpha_dropout", "feature_alpha_dropout")
    for name in (*kinds, "dropout1d", "dropout2d", "dropout3d"):
        _replace(F, name, lambda original: lambda input, *args, **kwargs: input)
    _replace(F, "scaled_dot_product_attention", _without_dropout)
    init: Any = nn.RNNBase.__init__

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.dropout = 0.0

    setattr(nn.RNNBase, "__init__", construct)  # noqa: B010


def neutralise_batch_norm() -> None:
    """Batch norm uses its initial running statistics: no batch, so no split of it, matters."""

    def fixed(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
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
            keep = training and running_mean is None
            return original(input, running_mean, running_var, weight, bias, keep, momentum, eps)

        return normalise

    _replace(F, "batch_norm", fixed)


def limit_waiting(seconds: float) -> None:
    """A process group without a timeout of its own gets this one, so that a hang ends soon."""

    def limited(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def initialise(
            backend: Any = None, init_method: Any = None, timeout: Any = None, **kwargs: Any
        ) -> None:
            timeout = timeout or timedelta(seconds=seconds)
            original(backend, init_method, timeout, **kwargs)

        return initialise

    _replace(dist, "init_process_group", limited)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


def _doubled(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def convert(*args: Any, **kwargs: Any) -> Tensor:
        tensor = original(*args, **kwargs)
        if tensor.dtype != _SINGLE or tensor.grad_fn is not None:
            return tensor
        return tensor.detach().double().requires_grad_(tensor.requires_grad)

    return convert


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
