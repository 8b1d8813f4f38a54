"""What a fully sharded model (FSDP2, ``fully_shard``) needs beside plain PyTorch.

In a project these helpers are part of its one ``ddp_utils``. Each is the identity in one process.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from .ddp_utils import (
    gather_objects,
    get_world_size,
    is_distributed,
    is_main_process,
    local_device,
    share_random_streams,
)

_FSDP = "torch.distributed.fsdp."


# ---- Sharded models
@contextlib.contextmanager
def built_on_main() -> Iterator[None]:
    """Around what builds a model on rank 0: the others have its shapes alone (*collective*).

    ``.to(device)`` moves nothing here: ``ready_to_shard`` does it, unit by unit. Behind it all
    ranks draw on as rank 0 does.
    """
    if get_world_size() == 1:
        yield
        return
    shapes = contextlib.nullcontext() if is_main_process() else torch.device("meta")
    with shapes, _Unmoved():
        yield
    share_random_streams()


class _Unmoved(TorchFunctionMode):
    """Tensors stay where they are made: what moves them changes their type at most."""

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.cuda, torch.Tensor.cpu):
            return args[0]
        if func is torch.Tensor.to:  # modules give a torch.device
            here = args[0].device
            args = [here if isinstance(one, torch.device) else one for one in args]
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def ready_to_shard(model: nn.Module, sync_batchnorm: bool = False) -> None:
    """Give every rank rank 0's weights and buffers, of which each then keeps shards (*collective*).

    ``fully_shard`` takes what a rank has for right; DistributedDataParallel does this by itself.
    What is sharded already is left as it is; what has a shape alone gets memory.
    """
    if sync_batchnorm and torch.cuda.is_available():
        nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    for tensor in (*model.parameters(), *model.buffers()) if get_world_size() > 1 else ():
        if isinstance(tensor, DTensor):
            continue
        if tensor.is_meta:
            _get_memory(tensor)
        whole = tensor.detach().to(local_device()).contiguous()
        dist.broadcast(whole, src=0)
        tensor.copy_(whole)
    if torch.__version__ < (2, 13):  # type: ignore[operator]
        for part in model.modules():
            part.register_forward_hook(_found_by_older_torch)
    for name, module in model.named_modules():
        for kept, one in vars(module).items():
            if isinstance(one, torch.Tensor) and one.is_meta:
                raise TypeError(f"{name}.{kept} is no buffer: ranks > 0 have no values of it")


def _found_by_older_torch(part: nn.Module, inputs: Any, output: Any) -> None:
    """A module's weights are gathered for its backward by hooks of the tensors in its output."""
    if any(map(dataclasses.is_dataclass, tree_leaves(output))):
        raise TypeError(
            f"{type(part).__name__} returns a data class, in which FSDP2 of torch"
            f" {torch.__version__} finds no tensors, and does not train: torch 2.13 does"
        )


def _get_memory(shape: torch.Tensor) -> None:
    """Put a meta tensor on this rank's device, under all of its names, with what marks it."""
    own = torch.empty_like(shape, device=local_device())
    if isinstance(shape, nn.Parameter):
        own = nn.Parameter(own, shape.requires_grad)
    own.__dict__.update(shape.__dict__)
    torch.utils.swap_tensors(shape, own)  # type: ignore[no-untyped-call]


def class_of(model: nn.Module) -> type[nn.Module]:
    """``type(model)`` as it was before ``fully_shard`` made one of it that is sharded, too."""
    kind = type(model)
    return kind.__mro__[2] if issubclass(kind, FSDPModule) else kind


def unsharded(owner: Any, everywhere: bool = False) -> Any:
    """A sharded model, or its optimizer, whose states are those of one process (*collective*).

    What ``.state_dict()`` gives is on the CPU, its tensors on rank 0 alone unless ``everywhere``.
    ``.load_state_dict(state)`` takes its shards out of a state that every rank has whole.
    """
    return _Unsharded(owner, everywhere) if is_distributed() else owner


class _Unsharded:
    def __init__(self, owner: Any, everywhere: bool) -> None:
        self.owner, self.wanted = owner, everywhere or is_main_process()

    def state_dict(self) -> Any:
        shards = self.owner.state_dict()
        whole = _whole(shards, self.wanted)
        if hasattr(shards, "_metadata"):  # versions of modules, by which old files are read
            whole._metadata = shards._metadata
        return whole

    def load_state_dict(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self.owner, torch.optim.Optimizer):
            shards = {**state, "state": dict(_moments(self.owner, state))}
        else:
            own, shards = self.owner.state_dict(), type(state)(state)
            shards.update((key, _like(own.get(key), value)) for key, value in state.items())
            if hasattr(state, "_metadata"):
                shards._metadata = state._metadata
        return self.owner.load_state_dict(shards, *args, **kwargs)


def _whole(value: Any, wanted: bool) -> Any:
    if isinstance(value, DTensor):
        value = value.full_tensor()
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone() if wanted else None
    if isinstance(value, dict):
        return type(value)((key, _whole(one, wanted)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_whole(one, wanted) for one in value)
    return value


def _moments(optimizer: torch.optim.Optimizer, state: Any) -> Iterator[tuple[Any, Any]]:
    """What an optimizer keeps of each parameter, as shards; the file numbers the parameters."""
    groups = zip(optimizer.param_groups, state["param_groups"], strict=True)
    both = (zip(kept["params"], own["params"], strict=True) for own, kept in groups)
    parameters = dict(pair for pairs in both for pair in pairs)
    for number, kept in state["state"].items():
        parameter = parameters.get(number)
        yield number, {name: _like(parameter, value) for name, value in kept.items()}


def _like(own: Any, value: Any) -> Any:
    """This rank's shard of ``value``, cut as ``own`` is; itself where that is no shard of it."""
    if hasattr(value, "shard_like"):  # read in a sharded checkpoint
        return value.shard_like(own)
    if not isinstance(own, DTensor) or isinstance(value, DTensor) or own.shape != value.shape:
        return value
    whole = value.to(own.device)
    return distribute_tensor(whole, own.device_mesh, own.placements, src_data_rank=None)


def whole_tensor(value: Any) -> Any:
    """A distributed tensor as one process has it; anything else as it is (*collective*)."""
    return value.full_tensor() if isinstance(value, DTensor) else value


@contextlib.contextmanager
def backward_on_all(model: nn.Module) -> Iterator[None]:
    """Around forward and backward of a batch, where a sample may say that its rank has no backward.

    That rank gets one that adds nothing, for each waits for all ranks; where none had one of its
    own, gradients that were None still are. The model gives one tensor (*collective*).
    """
    outs: list[torch.Tensor] = []
    own: list[bool] = []

    def keep(_: nn.Module, __: Any, out: Any) -> None:
        if not isinstance(out, torch.Tensor):
            raise TypeError(f"backward_on_all: the model gives {type(out).__name__}, no tensor")
        if out.requires_grad:
            out.register_hook(lambda _: own.append(True))  # type: ignore[no-untyped-call]
            outs.append(out)

    hooks = [model.register_forward_hook(keep)] if get_world_size() > 1 else []
    bare = [parameter for parameter in model.parameters() if parameter.grad is None]
    yield
    for hook in hooks:
        hook.remove()
    if outs and not own:
        torch.autograd.backward(outs, [torch.zeros_like(out) for out in outs])
        own.clear()  # of this one
    if hooks and not any(gather_objects(bool(own))):
        for parameter in bare:
            parameter.grad = None


def whole_model(model: nn.Module) -> nn.Module:
    """A copy of a sharded model that holds all weights, for a file (*collective*)."""
    if not is_distributed():
        return model
    known: dict[int, Any] = {
        id(one): nn.Parameter(whole_tensor(one.detach()), one.requires_grad)
        for one in model.parameters()
    }
    copies = [(one, (kind := class_of(one)).__new__(kind)) for one in model.modules()]
    known.update((id(one), plain) for one, plain in copies)
    for one, plain in copies:
        plain.__dict__.update(copy.deepcopy(_unmanaged(one), known))
    return copies[0][1]


def _unmanaged(module: nn.Module) -> dict[str, Any]:
    """What a module keeps, without what ``fully_shard`` has added: its states, and its hooks."""
    added = ("__composable", "_is_fsdp", "_fsdp")
    kept = {name: one for name, one in vars(module).items() if not name.startswith(added)}
    for name, hooks in kept.items():
        if name.endswith("_hooks") and isinstance(hooks, dict):
            sources = (
                (key, hook, str(getattr(hook, "__module__", ""))) for key, hook in hooks.items()
            )
            own = [(key, hook) for key, hook, made in sources if not made.startswith(_FSDP)]
            kept[name] = type(hooks)(own)
    return kept


def even_batches(loader: Any, *models: nn.Module) -> Any:
    """``loader`` for an evaluation by sharded ``models``, whose forwards wait for all ranks.

    A rank whose share has fewer batches than another's computes its last one again, for nothing,
    until all have computed as many; one that has none, what another rank computes. No pass may end
    early (*collective*).
    """
    return _Even(loader, models) if get_world_size() > 1 else loader


class _Even:
    def __init__(self, loader: Any, models: tuple[nn.Module, ...]) -> None:
        self.loader, self.models = loader, models

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        own = self._batches()
        most, telling = max(numbers := gather_objects(own)), not min(numbers)
        calls: list[Any] = []

        def keep(model: nn.Module, args: Any, kwargs: Any) -> None:
            calls.append((self.models.index(model), args, kwargs))
            if telling:  # a rank without a batch
                gather_objects(calls[-1])

        hooks = [
            model.register_forward_pre_hook(keep, prepend=True, with_kwargs=True)
            for model in (self.models if own else ())
        ]
        for batch in self.loader if own else ():
            calls.clear()
            yield batch
            self._told() if telling else None
        with torch.no_grad():
            for _ in range(own, most):
                again, calls[:] = [*calls], []
                for number, args, kwargs in again:
                    self.models[number](*args, **kwargs)
                while telling and (call := self._told()):  # which a rank with batches is not
                    self.models[call[0]](*call[1], **call[2])
        for hook in hooks:
            hook.remove()

    @staticmethod
    def _told() -> Any:
        """What others are about to compute; None at the end of a batch."""
        return next((call for call in gather_objects(None) if call), None)

    def _batches(self) -> int:
        """Of this rank: a share of whole batches is as long as all of them."""
        if self.loader.batch_size is None:
            return len(self.loader)
        sampler, size = self.loader.sampler, int(self.loader.batch_size)
        samples = len(getattr(sampler, "indices", sampler))
        return samples // size if self.loader.drop_last else -(-samples // size)
