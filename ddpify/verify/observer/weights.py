"""The parameters of modules one by one: their place, and what is kept of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from ddpify.verify.observer.probe import tensors

_WRAPPERS = (nn.DataParallel, DistributedDataParallel)
_Placed = tuple[str, tuple[str, ...], nn.Parameter]


def sizes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements; 0 of a sparse one."""
    return tensor.numel() * tensor.element_size() if tensor.layout is torch.strided else 0


def weights(
    modules: Iterable[nn.Module], optimizers: Iterable[Any], gradients: dict[int, int]
) -> list[dict[str, Any]]:
    """Each parameter once; ``gradients`` are the bytes of theirs, by id."""
    stepping, found = list(optimizers), dict[int, dict[str, Any]]()
    for model, root in enumerate(modules):
        for name, kinds, parameter in _placed(root):
            if id(parameter) not in found:
                found[id(parameter)] = {
                    "name": name,
                    "kinds": kinds,
                    "model": model,
                    "rows": parameter.shape[0] if parameter.dim() else 1,
                    "size": sizes(parameter),
                    "element": parameter.element_size(),
                    "trained": parameter.requires_grad,
                    "gradient": gradients.get(id(parameter), 0),
                    **_states(parameter, stepping),
                }
    return list(found.values())


def _placed(module: nn.Module, path: str = "", kinds: tuple[str, ...] = ()) -> Iterator[_Placed]:
    """With the classes on the way to a parameter; wrappers are no part of it."""
    children = dict(module.named_children())
    inner = children.get("module" if isinstance(module, _WRAPPERS) else "_orig_mod")
    if inner is not None:
        yield from _placed(inner, path, kinds)
        return
    kinds = (*kinds, type(module).__name__)
    for name, parameter in module.named_parameters(recurse=False):
        if not is_lazy(parameter):  # without a shape: it was not used
            yield f"{path}{name}", kinds, parameter
    for name, child in children.items():
        yield from _placed(child, f"{path}{name}.", kinds)


def _states(parameter: nn.Parameter, optimizers: list[Any]) -> dict[str, int]:
    """What has a parameter's shape is sharded like it; a count of steps is not."""
    kept = [t for one in optimizers for t in tensors(dict(one.state.get(parameter, {})))]
    alike = [t for t in kept if t.shape == parameter.shape]
    state = sum(map(sizes, alike))
    return {"state": state, "scalars": sum(map(sizes, kept)) - state}
