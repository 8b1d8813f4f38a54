"""The names of an optimizer's parameters, found among the modules that are alive."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

_PARTS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def name_parameters(groups: Sequence[Sequence[Any]]) -> list[str]:
    """As the outermost module that holds each one names it, without what wrappers add.

    Where one optimizer has parameters of several modules, names that would be the same are
    preceded by the module's class. A parameter outside any module is named by its place.
    """
    wanted = {id(parameter) for group in groups for parameter in group}
    found: dict[int, tuple[str, str]] = {}
    for root in sorted(roots(), key=lambda module: -_held(module, wanted)):
        kind = type(_unwrapped(root)).__name__
        wrappers = _wrappers(root)
        for name, parameter in root.named_parameters():
            if id(parameter) in wanted:
                found.setdefault(id(parameter), (kind, without_wrappers(name, wrappers)))
    shared = Counter(name for _, name in found.values())
    return [
        _full(found[id(parameter)], shared) if id(parameter) in found else f"group{g}.{i}"
        for g, group in enumerate(groups)
        for i, parameter in enumerate(group)
    ]


def without_wrappers(name: str, wrappers: Sequence[str] = ()) -> str:
    """A name without what DDP, torch.compile, FSDP and checkpointing put into it.

    ``wrappers`` are the paths of DDP and DataParallel, longest first: elsewhere a part called
    ``module`` is the user's own.
    """
    for path in wrappers:
        if name.startswith(f"{path}module."):
            name = path + name.removeprefix(f"{path}module.")
    for part in _PARTS:
        name = name.replace(part, "")
    return name


def _wrappers(root: nn.Module) -> list[str]:
    kinds = (nn.DataParallel, DistributedDataParallel)
    paths = [name and f"{name}." for name, one in root.named_modules() if isinstance(one, kinds)]
    return sorted(paths, key=len, reverse=True)


def _full(found: tuple[str, str], shared: Counter[str]) -> str:
    kind, name = found
    return f"{kind}.{name}" if shared[name] > 1 else name


def roots() -> Iterator[nn.Module]:
    # type() and not isinstance(), which would run code of proxies that are alive
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    complete = [one for one in modules if "_modules" in one.__dict__]
    children = {id(child) for one in complete for child in one._modules.values()}
    return (one for one in complete if id(one) not in children)


def _held(module: nn.Module, wanted: set[int]) -> int:
    return sum(id(parameter) in wanted for parameter in module.parameters())


def _unwrapped(module: nn.Module) -> nn.Module:
    inner = module._modules.get("module") or module._modules.get("_orig_mod")
    return inner if len(module._modules) == 1 and inner is not None else module
