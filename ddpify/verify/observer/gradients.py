"""Watches backwards, and the forwards of DDP that arm (or do not arm) their synchronisation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddpify.verify.observer.collectives import broadcasts_buffers
from ddpify.verify.observer.naming import without_wrappers
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.places import Places
from ddpify.verify.observer.record import Recorder


class GradientWatch:
    """``losses`` are the values ``backward()`` was called on since they were last taken."""

    def __init__(self, recorder: Recorder, places: Places) -> None:
        self._recorder = recorder
        self._places = places
        self._losses: list[float] = []
        self._wrappers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._seen = 0
        self._armed = False  # a forward of DDP since the last backward will be all-reduced
        self._inside = False

    def start(self, patcher: Patcher) -> None:
        patcher.replace(torch.autograd, "backward", self._watch_backward)
        patcher.replace(DistributedDataParallel, "__init__", self._watch_init)
        patcher.replace(DistributedDataParallel, "forward", self._watch_forward)
        patcher.replace(nn.Module, "load_state_dict", self._watch_load)
        patcher.before(nn.DataParallel, "__init__", self._note_data_parallel)

    def take_losses(self) -> list[float]:
        taken, self._losses = self._losses, []
        return taken

    def _watch_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(tensors, Tensor):
                tensors = tuple(tensors)
            if self._inside or self._recorder.quiet:  # a checkpointed part's, in a backward
                return original(tensors, *args, **kwargs)
            self._inside = True
            try:
                return self._backward(original, tensors, args, kwargs)
            finally:
                self._inside = False

        return backward

    def _backward(self, original: Callable[..., Any], tensors: Any, args: Any, more: Any) -> Any:
        loss = self._value(tensors)
        if loss is not None:
            self._losses.append(loss)
            self._recorder.loss = loss if math.isfinite(loss) else self._recorder.loss
        self._recorder.note("backward", loss=loss)
        if not self._armed:
            return original(tensors, *args, **more)
        self._armed = False
        name = "backward of DistributedDataParallel"
        with self._recorder.waiting("implicit", name=name, site=self._places.site()):
            return original(tensors, *args, **more)

    def _value(self, tensors: Any) -> float | None:
        several = [tensors] if isinstance(tensors, Tensor) else tensors
        if len(several) != 1 or several[0].numel() != 1:
            return None
        tensor = several[0]
        if tensor.is_cuda:
            torch.cuda.synchronize()  # what is waited for is the script's, not the observer's
        with self._recorder.own():
            return float(tensor.detach())

    def _watch_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            original(wrapper, *args, **kwargs)
            self._number(wrapper)

        return init

    def _watch_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(module: Any, *args: Any, **kwargs: Any) -> Any:
            self._recorder.note("loaded")
            return original(module, *args, **kwargs)

        return load

    def _note_data_parallel(self, *_: Any, **__: Any) -> None:
        self._recorder.note("data parallel")

    def _watch_forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def forward(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            grad = torch.is_grad_enabled()
            sync = grad and bool(wrapper.require_backward_grad_sync)
            self._armed = self._armed or sync
            self._recorder.note(
                "forward",
                wrapper=self._number(wrapper),
                grad=grad,
                sync=sync,
                buffers=broadcasts_buffers(wrapper),
            )
            return original(wrapper, *args, **kwargs)

        return forward

    def _number(self, wrapper: Any) -> int:
        if wrapper not in self._wrappers:
            self._wrappers[wrapper] = self._seen
            self._seen += 1
            self._recorder.note("wrapped", names=_synchronised(wrapper))
        return self._wrappers[wrapper]


def _synchronised(wrapper: Any) -> list[str]:
    ignored = getattr(wrapper, "parameters_to_ignore", ())
    named = wrapper.module.named_parameters()
    return [without_wrappers(name) for name, p in named if p.requires_grad and name not in ignored]
