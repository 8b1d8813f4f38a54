"""Lets a script compute in double precision, where sums in another order agree to 1e-12."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from ddpify.verify.observer.patching import Patcher

_SINGLE, _DOUBLE = torch.float32, torch.float64  # before the first becomes a name of the second


def compute_in_float64(patcher: Patcher) -> None:
    """Make float32 a second name of float64, in Python as far as a script can reach.

    Mixed precision is off then: autocast leaves doubles alone, and gradients are not scaled.
    """
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
        patcher.replace(torch, name, _doubled)
    patcher.replace(GradScaler, "__init__", _switched_off)


def _switched_off(original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> None:
        call = signature.bind(*args, **kwargs)
        call.arguments["enabled"] = False
        original(*call.args, **call.kwargs)

    return init


def _doubled(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def convert(*args: Any, **kwargs: Any) -> Tensor:
        tensor = original(*args, **kwargs)
        if tensor.dtype != _SINGLE or tensor.grad_fn is not None:
            return tensor
        return tensor.detach().double().requires_grad_(tensor.requires_grad)

    return convert
