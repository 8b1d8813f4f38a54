"""Watches the calls a training script makes: steps, batches, gradients, collectives.

Each function patches or hooks torch for the rest of the process and changes no result.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data import dataloader as loaders

from tests.support.observer.record import Recorder

_DOUBLE = torch.float64
_TORCH = str(Path(torch.__file__).parent)
_COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "init_process_group",
    "monitored_barrier",
    "new_group",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)


def watch_everything(recorder: Recorder) -> None:
    watch_steps(recorder)
    watch_loaders(recorder)
    watch_gradients(recorder)
    watch_collectives(recorder)
    watch_saves(recorder)
    recorder.watch_files()


def watch_steps(recorder: Recorder) -> None:
    """Parameters and gradient norms after each optimizer step, in the order of the groups."""

    def after_step(optimizer: Optimizer, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        recorder.steps.append(
            {
                "optimizer": type(optimizer).__name__,
                "parameters": [_flat(p) for p in parameters],
                "gradient_norms": [_norm(p.grad) for p in parameters],
            }
        )
        recorder.note("step")

    register_optimizer_step_post_hook(after_step)


def watch_loaders(recorder: Recorder) -> None:
    """The sample indices behind every batch, at the moment the script gets it.

    Indices are taken where the loader asks its sampler and handed out again in order, which
    holds with workers that prefetch too.
    """
    seen: list[str] = []
    iterator: Any = loaders._BaseDataLoaderIter
    start, reset, ask = iterator.__init__, iterator._reset, iterator._next_index
    advance = iterator.__next__

    def begin(self: Any, loader: Any) -> None:
        ordinal = loader.__dict__.setdefault("_observed_ordinal", len(seen))
        seen.extend([type(loader.dataset).__name__] * (ordinal == len(seen)))
        passes = loader.__dict__.get("_observed_passes", 0)
        loader.__dict__["_observed_passes"] = passes + 1
        self._observed = {"loader": ordinal, "pass": passes}
        self._observed_indices = deque()

    def init(self: Any, loader: Any) -> None:
        begin(self, loader)
        start(self, loader)

    def reuse(self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            begin(self, loader)
        reset(self, loader, first_iter)

    def next_index(self: Any) -> Any:
        indices = ask(self)
        self._observed_indices.append(indices)
        return indices

    def next_batch(self: Any) -> Any:
        grad = torch.is_grad_enabled()
        try:
            batch = advance(self)
        except StopIteration:
            recorder.note("end", **self._observed)
            raise
        indices = self._observed_indices.popleft() if self._observed_indices else None
        streamed = self._dataset_kind == loaders._DatasetKind.Iterable
        samples = _fingerprints(batch) if streamed else _listed(indices)
        recorder.note(
            "fetch", **self._observed, samples=samples, grad=grad, steps=len(recorder.steps)
        )
        return batch

    iterator.__init__, iterator._reset, iterator._next_index = init, reuse, next_index
    iterator.__next__ = next_batch


def watch_gradients(recorder: Recorder) -> None:
    """Backwards, and for DDP its construction and whether each forward arms a synchronisation."""
    ddp: Any = DistributedDataParallel
    forward, init = ddp.forward, ddp.__init__

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.note("ddp")
        init(self, *args, **kwargs)

    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        armed = self.require_backward_grad_sync and torch.is_grad_enabled()
        recorder.note("ddp_forward", sync=armed)
        return forward(self, *args, **kwargs)

    ddp.__init__, ddp.forward = construct, call
    _before(torch.autograd, "backward", lambda *_: recorder.note("backward"))


def watch_collectives(recorder: Recorder) -> None:
    def entering(name: str) -> Callable[..., None]:
        return lambda *_: recorder.note("collective", name=name, site=_caller())

    for name in _COLLECTIVES:
        if hasattr(dist, name):
            _before(dist, name, entering(name))


def watch_saves(recorder: Recorder) -> None:
    """torch.save opens its file in C++, where no audit event is raised."""

    def saving(*args: Any) -> None:
        recorder.note_file("torch.save", args[1])

    _before(torch, "save", saving, names=("obj", "f"))
    setattr(torch.serialization, "save", torch.save)  # noqa: B010


def _before(
    owner: Any, name: str, listen: Callable[..., None], names: tuple[str, ...] = ()
) -> None:
    """Call ``listen`` with the leading arguments, then what was there."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        listen(*args, *(kwargs.get(key) for key in names[len(args) :]))
        return original(*args, **kwargs)

    setattr(owner, name, watched)


def _caller() -> str:
    """The nearest frame that is neither torch's nor the observer's."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith((_TORCH, str(Path(__file__)))):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _flat(tensor: Any) -> Tensor:
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    copy: Tensor = whole.detach().to("cpu", _DOUBLE, copy=True).flatten()
    return copy


def _norm(gradient: Any) -> float | None:
    if gradient is None:
        return None
    return float(_flat(gradient.to_dense() if gradient.is_sparse else gradient).norm())


def _listed(indices: Any) -> list[int | str]:
    many = indices if isinstance(indices, (list, tuple)) else [indices]
    return [int(i) if hasattr(i, "__index__") else repr(i) for i in many]


def _fingerprints(batch: Any) -> list[str]:
    """Samples of an iterable data set have no index: name each by its bytes in the first tensor."""
    while isinstance(batch, (list, tuple, dict)) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    rows = batch if isinstance(batch, Tensor) and batch.ndim else [batch]
    return [hashlib.sha1(_bytes(row)).hexdigest()[:12] for row in rows]


def _bytes(row: Any) -> bytes:
    return row.contiguous().numpy().tobytes() if isinstance(row, Tensor) else repr(row).encode()
