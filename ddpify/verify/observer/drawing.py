"""What is common to drawing tensors, arrays and plain numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch


class DrawSource(Protocol):
    """Knows the batch; see draws.py."""

    neutral: bool

    @property
    def wanted(self) -> bool: ...

    def met(self, stream: str, shape: Sequence[int]) -> None: ...

    def seeds(self, name: str, shape: Sequence[int], divisible: bool = True) -> int | list[int]: ...


def watched(
    source: DrawSource,
    stream: str,
    original: Callable[..., Any],
    neutral: Callable[..., Any],
) -> Callable[..., Any]:
    """``neutral`` instead of ``original``, where the draw is for a batch and is to be neutral.

    What draws from a generator of the script's own is left as it is, and so is what is compiled.
    """

    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not source.wanted:
            return original(*args, **kwargs)
        if source.neutral and kwargs.get("generator") is None:
            kwargs.pop("generator", None)
            return neutral(*args, **kwargs)
        drawn = original(*args, **kwargs)
        device = getattr(getattr(drawn, "device", None), "type", "cpu")
        source.met(device if device != "cpu" else stream, getattr(drawn, "shape", ()))
        return drawn

    return draw
