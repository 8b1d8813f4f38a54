"""Measures what one training step holds in memory: what ``ddpify plan --measure`` is told.

Tensors are counted, not the process: each storage once, by the bytes it holds. So it is the same
on the CPU and, up to what kernels keep of their own, on a GPU.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ddpify.verify.observer import streams
from ddpify.verify.observer.loaders import LoaderWatch, length
from ddpify.verify.observer.naming import roots
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.probe import tensors
from ddpify.verify.observer.record import Recorder, StopRun
from ddpify.verify.observer.weights import sizes, weights

ENOUGH = 20  # steps: some optimizer may be there that never steps


@dataclass(frozen=True)
class _Storage:
    """``reference`` does not keep it alive; ``inside`` a trained module's forward it was saved."""

    reference: Any
    size: int
    device: str
    inside: bool = False

    @property
    def alive(self) -> bool:
        return not self.reference.expired()


@dataclass
class _Kept:
    """Bytes at the beginning of a backward, the largest of all so far."""

    inputs: int = 0
    saved: int = 0
    outputs: int = 0
    shared: int = 0
    loss: int = 0

    @property
    def total(self) -> int:
        return self.inputs + self.saved + self.outputs - self.shared + self.loss


class MemoryWatch:
    """Looks until every optimizer has taken a step, and one of them two; then it ends the run."""

    def __init__(self, recorder: Recorder, loaders: LoaderWatch) -> None:
        self._recorder = recorder
        self._loaders = loaders
        self._depth = 0  # trained modules in whose forward the program is
        self._saved: dict[int, _Storage] = {}
        self._outputs: dict[int, _Storage] = {}
        self._inputs: dict[int, _Storage] = {}
        self._kept = _Kept()
        self._batch: dict[str, Any] = {}
        self._fetched: dict[str, Any] = {}
        self._stepped: WeakSet[Any] = WeakSet()
        self._gradients: dict[int, int] = {}  # bytes, by parameter
        self._backwards = 0
        self._passes: dict[int, int] = {}  # backwards before an optimizer's last step
        self._found: dict[str, Any] = {}

    def start(self, patcher: Patcher) -> None:
        patcher.replace(nn.Module, "__call__", self._watch_call)
        patcher.replace(torch.autograd, "backward", self._watch_backward)
        patcher.replace(_BaseDataLoaderIter, "__init__", self._watch_loader)
        patcher.replace(_BaseDataLoaderIter, "__next__", self._watch_next)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        # for the whole run, as the script would be between `with` and its end
        saved_tensors_hooks(self._pack, lambda tensor: tensor).__enter__()

    def answer(self) -> None:
        """Write down what was found; nothing if no optimizer took a step."""
        if self._found:
            self._recorder.note("memory", **self._found)

    def _pack(self, tensor: Tensor) -> Tensor:
        """What autograd keeps for backward passes through here; it is kept as it is."""
        if not self._recorder.quiet:
            for key, storage in _storages((tensor,), self._depth > 0).items():
                known = self._saved.get(key)
                if known is None or not known.alive:
                    self._saved[key] = storage
        return tensor.detach()  # the tensor itself would be a cycle, says the documentation

    def _watch_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self._recorder.quiet or not torch.is_grad_enabled() or not _is_trained(module):
                return original(module, *args, **kwargs)
            outermost = self._depth == 0
            if outermost:
                self._inputs.update(_storages(_given((args, kwargs))))
            self._depth += 1
            try:
                output = original(module, *args, **kwargs)
            finally:
                self._depth -= 1
            if outermost:
                self._outputs.update(_storages(tensors(output)))
            return output

        return call

    def _watch_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if not self._recorder.quiet:
                self._backwards += 1
                with self._recorder.own():
                    self._look()
            return original(*args, **kwargs)

        return backward

    def _look(self) -> None:
        """The memory kept at the end of the forward: after this it is given back bit by bit."""
        constant = _storages(one for module in roots() for one in _constants(module))
        self._saved, self._outputs, self._inputs = map(
            _living, (self._saved, self._outputs, self._inputs)
        )
        kept = self._count(constant)
        if kept.total > self._kept.total:
            self._kept, self._batch = kept, self._fetched

    def _count(self, constant: dict[int, _Storage]) -> _Kept:
        """Each storage under one heading; ``shared`` is of ``saved`` and ``outputs`` both."""
        ours = {one.device for one in constant.values()}  # where it was loaded does not count
        skipped = constant.keys() | self._outputs.keys()
        inputs = {k for k, one in self._inputs.items() if k not in skipped and one.device in ours}
        kept = _Kept(_size(self._inputs[key] for key in inputs))
        kept.outputs = _size(self._outputs.values())
        for key, one in self._saved.items():
            if key in constant or key in inputs:
                continue
            if one.inside:
                kept.saved += one.size
                kept.shared += one.size if key in self._outputs else 0
            elif key not in self._outputs:
                kept.loss += one.size
        return kept

    def _watch_loader(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(iterator: Any, loader: Any) -> None:
            iterator._observed_loader = _describe(loader)
            original(iterator, loader)

        return init

    def _watch_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def fetch(iterator: Any) -> Any:
            batch = original(iterator)
            if torch.is_grad_enabled() and not self._recorder.quiet:
                with self._recorder.own():
                    self._inputs.update(_storages(tensors(batch)))
                    taken = self._loaders.batch
                    count = len(taken.samples) if taken is not None else 0
                    self._fetched = {"batch": count, **iterator._observed_loader}
            return batch

        return fetch

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        with self._recorder.own():
            held = (p for m in self._trained() for p in m.parameters() if p.grad is not None)
            found = {id(p): sizes(p.grad) for p in held if p.grad is not None}
            self._gradients = max(self._gradients, found, key=lambda one: sum(one.values()))

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        again = optimizer in self._stepped
        passes = self._backwards - self._passes.get(id(optimizer), 0)
        self._passes[id(optimizer)] = self._backwards
        self._stepped.add(optimizer)
        self._recorder.steps += 1
        with self._recorder.own():
            self._found = {**self._measured(), "passes": passes}
        self._recorder.note("stepped")
        if (again and not self._waited_for()) or self._recorder.steps >= ENOUGH:
            raise StopRun

    def _waited_for(self) -> bool:
        """Whether there is an optimizer that has not stepped yet."""
        alive = (one for one in gc.get_objects() if issubclass(type(one), torch.optim.Optimizer))
        return any(one not in self._stepped for one in alive if "param_groups" in one.__dict__)

    def _trained(self) -> list[nn.Module]:
        """The whole modules that hold what any optimizer changes."""
        held = {id(p) for one in self._stepped for g in one.param_groups for p in g["params"]}
        return [m for m in roots() if any(id(p) in held or p.requires_grad for p in m.parameters())]

    def _measured(self) -> dict[str, Any]:
        modules = self._trained()
        parameters = [p for module in modules for p in module.parameters()]
        loose = [p for one in self._stepped for g in one.param_groups for p in g["params"]]
        every = [*parameters, *loose]
        cuda = streams.cuda_in_use()
        return {
            "device": str(next((p.device for p in every), "cpu")),
            "torch": torch.__version__,
            "parameters": _size(_storages(every).values()),
            "buffers": _size(_storages(b for m in modules for b in m.buffers()).values()),
            "trainable": _size(_storages(p for p in every if p.requires_grad).values()),
            "gradients": sum(self._gradients.values()),
            "weights": weights(modules, self._stepped, self._gradients),
            "state": _size(_storages(self._states()).values()),
            **{"batch": 0, **self._batch},
            **{one.name: getattr(self._kept, one.name) for one in fields(_Kept)},
            "allocated": int(torch.cuda.max_memory_allocated()) if cuda else 0,
            "capacity": int(torch.cuda.get_device_properties(0).total_memory) if cuda else 0,
        }

    def _states(self) -> Iterator[Tensor]:
        for optimizer in self._stepped:
            yield from tensors(dict(optimizer.state))


def _is_trained(module: nn.Module) -> bool:
    return module.training and any(p.requires_grad for p in module.parameters())


def _given(inputs: Any) -> Iterator[Tensor]:
    """What comes from outside: the batch, moved or not, but nothing a graph leads to."""
    return (one for one in tensors(inputs) if not one.requires_grad)


def _constants(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _storages(given: Iterable[Tensor], inside: bool = False) -> dict[int, _Storage]:
    found = {}
    for tensor in given:
        try:
            storage = tensor.untyped_storage()
            size = storage.nbytes()
            reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        except (NotImplementedError, RuntimeError, ValueError):  # sparse, not real, not yet there
            continue
        found[reference.cdata] = _Storage(reference, size, str(tensor.device), inside)
    return found


def _living(storages: dict[int, _Storage]) -> dict[int, _Storage]:
    return {key: one for key, one in storages.items() if one.alive}


def _size(storages: Iterable[_Storage]) -> int:
    return sum(one.size for one in storages)


def _describe(loader: Any) -> dict[str, Any]:
    return {
        "samples": length(loader.dataset),
        "batches": length(loader),
        "batch_size": getattr(loader, "batch_size", None) or 0,
        "drop_last": bool(getattr(loader, "drop_last", False)),
    }
