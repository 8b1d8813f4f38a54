"""Watches every optimizer step: gradients before it, parameters after it, and all around it."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddpify.verify.observer import streams
from ddpify.verify.observer.collectives import backend
from ddpify.verify.observer.gradients import GradientWatch
from ddpify.verify.observer.held import HeldWatch, stepped_by
from ddpify.verify.observer.naming import name_parameters
from ddpify.verify.observer.noise import Noise
from ddpify.verify.observer.record import Recorder, StopRun
from ddpify.verify.observer.signature import Signer, digest, whole

_PATIENCE = 20.0  # seconds that a rank which stops waits for the others' last steps


@dataclass
class _Signed:
    """Where the signatures of some tensors are in the file of numbers, and their digests."""

    places: list[tuple[int, int] | None] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


class StepWatch:
    """``limit`` is the number of steps to stop after, 0 if there is none."""

    def __init__(
        self,
        recorder: Recorder,
        signer: Signer,
        gradients: GradientWatch,
        noise: Noise,
        limit: int,
    ) -> None:
        self._recorder = recorder
        self._signer = signer
        self._gradients = gradients
        self._noise = noise
        self._limit = limit
        self._known: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()
        self._optimizers = 0
        self._running: list[Any] = []  # optimizers in step(), the outermost first
        self._before = _Signed()
        self._held = HeldWatch()
        self._last = 0.0

    def start(self) -> None:
        register_optimizer_step_pre_hook(self._enter)
        register_optimizer_step_post_hook(self._leave)

    def follow(self, stepped: Any) -> None:
        """Describe what is stepped without an optimizer, as it is before the first step."""
        with self._recorder.own():
            first = self._register(stepped)
        self._recorder.note(**first)

    def taken(self, stepped: Any) -> None:
        """Note a step that was taken without an optimizer, and whose gradients are still there."""
        self._take_gradients(stepped)
        self._note(stepped)

    def _enter(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        if optimizer in self._running:  # its last step ended in an exception
            del self._running[self._running.index(optimizer) :]
        self._running.append(optimizer)
        if len(self._running) > 1 or _skips(optimizer):
            return None
        _settle()
        with self._recorder.own():
            first = self._register(optimizer)
        if first:
            self._recorder.note(**first)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            self._take_gradients(optimizer)
            return None
        following = self._following(optimizer, closure)
        if len(args) > 1:
            return (args[0], following, *args[2:]), kwargs
        return args, {**kwargs, "closure": following}

    def _following(self, optimizer: Any, closure: Callable[..., Any]) -> Callable[..., Any]:
        """A closure makes the gradients itself; those of its first call are the step's."""
        calls = iter((True,))

        @functools.wraps(closure)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = closure(*args, **kwargs)
            if next(calls, False):
                self._take_gradients(optimizer)
            return result

        return call

    def _take_gradients(self, optimizer: Any) -> None:
        _settle()
        with self._recorder.own(), torch.no_grad():
            scale = getattr(optimizer, "grad_scale", None)  # of a GradScaler, for fused steps
            self._before = self._signed((p.grad for p in stepped_by(optimizer)), scale)
            self._held.before(optimizer)

    def _leave(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if optimizer in self._running:
            del self._running[self._running.index(optimizer) + 1 :]
            self._running.pop()
        if not (self._running or _skips(optimizer) or optimizer not in self._known):
            self._note(optimizer)

    def _note(self, optimizer: Any) -> None:
        _settle()
        seconds = self._recorder.now() - self._last
        with self._recorder.own(), torch.no_grad():
            step = self._describe(optimizer)
            held = self._held.after(optimizer)
        self._recorder.note("step", seconds=seconds, **step)
        if held:
            self._recorder.note("held", **held)
        self._recorder.steps += 1
        self._last = self._recorder.now()
        if self._limit and self._recorder.steps >= self._limit:
            self._stop()

    def _describe(self, optimizer: Any) -> dict[str, Any]:
        after = self._signed(stepped_by(optimizer))
        return {
            "optimizer": self._known[optimizer][0],
            "learning_rates": [float(g["lr"]) for g in optimizer.param_groups if "lr" in g],
            "losses": self._gradients.take_losses(),
            "gradients": self._before.places,
            "gradient_digests": self._before.digests,
            "parameters": after.places,
            "digests": after.digests,
            "memory": _peak_memory(),
            "random": streams.digests(),
            "noise": self._noise.counts(),
        }

    def _register(self, optimizer: Any) -> dict[str, Any]:
        """The description of an optimizer at its first step, or when parameters were added."""
        parameters = stepped_by(optimizer)
        if self._known.get(optimizer, (0, -1))[1] == len(parameters):
            return {}
        self._known[optimizer] = self._optimizers, len(parameters)
        self._optimizers += 1
        with torch.no_grad():
            initial = self._signed(parameters)
        names = name_parameters([group["params"] for group in optimizer.param_groups])
        kinds = [(list(p.shape), str(p.dtype).removeprefix("torch.")) for p in parameters]
        return {
            "kind": "optimizer",
            "type": type(optimizer).__name__,
            "parameters": [(name, *kind) for name, kind in zip(names, kinds, strict=True)],
            "initial": initial.places,
            "initial_digests": initial.digests,
            "device": str(parameters[0].device) if parameters else "cpu",
            "backend": backend(),
            "sharded": [n for n, p in zip(names, parameters, strict=True) if _is_sharded(p)],
        }

    def _signed(self, tensors: Iterable[Any], scale: Any = None) -> _Signed:
        signed = _Signed()
        for tensor in tensors:
            if tensor is None:
                signed.places.append(None)
                signed.digests.append("")
                continue
            complete = whole(tensor)
            signature = self._signer.sign(complete)
            if scale is not None:
                signature = signature / float(scale)
            signed.places.append(self._recorder.keep(signature))
            signed.digests.append(digest(complete))
        return signed

    def _stop(self) -> None:
        """Leave once every rank has taken the last step: one that is gone breaks theirs."""
        with self._recorder.own():
            self._recorder.mark_end()
            until = time.monotonic() + _PATIENCE
            while not self._all_ended() and time.monotonic() < until:
                time.sleep(0.01)
        raise StopRun

    def _all_ended(self) -> bool:
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        return self._recorder.ended() >= ranks


def _skips(optimizer: Any) -> bool:
    """A GradScaler calls a fused optimizer even where the gradients overflowed."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def _is_sharded(parameter: Any) -> bool:
    return hasattr(parameter, "full_tensor")


def _settle() -> None:
    """Let the device finish first: that is the script's time, not the observer's."""
    if streams.cuda_in_use():
        torch.cuda.synchronize()


def _peak_memory() -> int:
    """Bytes: of the device if there is one in use, else of the process; 0 if not known."""
    if streams.cuda_in_use():
        return int(torch.cuda.max_memory_allocated())
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
