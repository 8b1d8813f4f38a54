"""What the trained model says of the first batch it was trained on, the same for every process."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ddpify.verify.observer import streams
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.record import Recorder
from ddpify.verify.observer.signature import Signer, digest


class Probe:
    """Remembers the outermost module of the first forward that trains.

    The first process of all to get there saves the inputs in ``file``; each runs its own module
    on those at the end.
    """

    def __init__(self, recorder: Recorder, signer: Signer, file: Path) -> None:
        self._recorder = recorder
        self._signer = signer
        self._file = file.resolve()
        self._module: nn.Module | None = None
        self._problem = "no module with trainable parameters was called while training"
        self._save = torch.save  # the script's is watched

    def start(self, patcher: Patcher) -> None:
        patcher.replace(nn.Module, "__call__", self._watch)

    def _watch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self._module is None and self._is_trained(module, args, kwargs):
                setattr(nn.Module, "__call__", original)  # noqa: B010  # nothing more to watch
                self._remember(module, args, kwargs)
            return original(module, *args, **kwargs)

        return call

    def _is_trained(self, module: nn.Module, args: Any, kwargs: Any) -> bool:
        if not torch.is_grad_enabled() or self._recorder.quiet or self._recorder.forked:
            return False
        if next(tensors((args, kwargs)), None) is None or _is_redirected(module):
            return False
        return module.training and any(p.requires_grad for p in module.parameters())

    def _remember(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._module, self._problem = module, ""
        with self._recorder.own():
            if self._recorder.rank or self._file.exists():
                return
            part = self._file.with_name(f"{self._file.name}.part")
            try:
                self._save((args, kwargs), part)
            except Exception as error:
                self._problem = f"its inputs cannot be saved: {error}"
            else:
                os.replace(part, self._file)

    def answer(self) -> None:
        """Run the module and record what it says, or why it cannot be asked."""
        module = _unwrapped(self._module)
        found: dict[str, Any] = {"output": None, "digest": "", "missing": self._problem}
        found["module"] = type(module).__name__
        with self._recorder.own():
            if not self._problem and _is_sharded(module):
                found["missing"] = "the model is sharded by FSDP"
            elif not self._problem:
                try:
                    output = self._run(module)
                    found["output"] = self._recorder.keep(self._signer.sign(output))
                    found["digest"] = digest(output)
                except Exception as error:
                    found["missing"] = f"{type(error).__name__}: {error}"
        self._recorder.note("probe", **found)

    def _run(self, module: Any) -> Tensor:
        place = next(module.parameters())
        args, kwargs = torch.load(self._file, map_location=place.device, weights_only=False)
        with _unheard(), streams.kept(), torch.no_grad():
            streams.seed("probe")
            module.eval()
            output = module(*args, **kwargs)
        floating = (one for one in tensors(output) if one.is_floating_point())
        first = next(floating, None)
        if first is None:
            raise TypeError(f"no floating-point tensor in a {type(output).__name__}")
        return first.detach()


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable()
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _unwrapped(module: Any) -> Any:
    while True:
        if isinstance(module, (DistributedDataParallel, nn.DataParallel)):
            module = module.module
        elif "_orig_mod" in getattr(module, "_modules", ()):  # compiled
            module = module._orig_mod
        else:
            return module


def _is_redirected(module: nn.Module) -> bool:
    """Lightning's strategies call DDP for ``training_step``: as ``forward``, until that begins."""
    inner = _unwrapped(module)
    called = vars(inner).get("forward")
    own = getattr(called, "__func__", None) is type(inner).forward  # put back
    return hasattr(inner, "training_step") and called is not None and not own


def _is_sharded(module: nn.Module) -> bool:
    """By FSDP2, whose parameters know their whole, or by FSDP1."""
    first = any(type(one).__name__ == "FullyShardedDataParallel" for one in module.modules())
    return first or any(hasattr(one, "full_tensor") for one in module.parameters())


def tensors(tree: Any) -> Iterator[Tensor]:
    """All tensors in containers, in order; also in objects that keep fields, as outputs do."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from tensors(tuple(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from tensors(one)
    elif hasattr(tree, "__dataclass_fields__"):
        yield from tensors(tuple(vars(tree).values()))
