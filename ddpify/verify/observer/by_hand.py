"""Steps that no optimizer takes: ``p.data.add_(p.grad, alpha=-lr)``.

Parameters that changed after a backward have been stepped. It is seen before gradients are
cleared, before the next backward, and at the end; programs with optimizers are not looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddpify.verify.observer.naming import roots
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.record import Recorder
from ddpify.verify.observer.signature import digest, whole
from ddpify.verify.observer.steps import StepWatch


class ByHand:
    """What is described in place of an optimizer."""

    def __init__(self, parameters: list[Any]) -> None:
        self.param_groups = [{"params": parameters}]


class HandWatch:
    """Tells ``steps`` of those that it cannot see."""

    def __init__(self, recorder: Recorder, steps: StepWatch) -> None:
        self._recorder = recorder
        self._steps = steps
        self._stepped: ByHand | None = None
        self._before: list[str] = []  # digests, after the last backward
        self._optimizers = False  # one was made

    def start(self, patcher: Patcher) -> None:
        patcher.before(torch.optim.Optimizer, "__init__", self._made)
        patcher.before(nn.Module, "zero_grad", lambda *_, **__: self.look())
        patcher.replace(torch.autograd, "backward", self._watch_backward)
        if dist.is_available():  # the last moment at which shards can be put together
            patcher.before(dist, "destroy_process_group", lambda *_, **__: self.look())

    def _made(self, *_: Any, **__: Any) -> None:
        self._optimizers = True

    def look(self) -> None:
        """Note a step if the parameters are others than after the last backward."""
        before, self._before = self._before, []
        if self._stepped is None or not before or self._optimizers:
            return
        if self._digests() != before:
            self._steps.taken(self._stepped)

    def _watch_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._recorder.quiet or self._optimizers:
                return original(*args, **kwargs)
            self.look()
            result = original(*args, **kwargs)
            self._follow()
            return result

        return backward

    def _follow(self) -> None:
        if self._stepped is None:
            with self._recorder.own():
                found = {id(p): p for root in roots() for p in root.parameters()}
                trained = [p for p in found.values() if p.grad is not None]
            if not trained:
                return
            self._stepped = ByHand(trained)
            self._steps.follow(self._stepped)
        self._before = self._digests()

    def _digests(self) -> list[str]:
        assert self._stepped is not None
        parameters = self._stepped.param_groups[0]["params"]
        with self._recorder.own(), torch.no_grad():
            return [digest(whole(p)) for p in parameters]
