"""Compares checkpoints of two runs; run by the interpreter that trained, with torch alone.

``ddpify.verify.interpreter`` asks ``main``; the paths are relative to both folders. Files that are
no checkpoint of the reference's are left out.
"""

from __future__ import annotations

import importlib
import math
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SMALLEST_ELEMENT = 1e-2  # as in ddpify.verify.distance
_KNOWN = {"torch", "numpy", "torchvision"} | set(sys.stdlib_module_names)
_PREFIX = re.compile(r"(^|/)module[./]")
_RANDOM = re.compile(r"rng|random|seed|time|date", re.IGNORECASE)
_MOST = 3  # names shown in a problem


class Stub:
    """Stands for an object of a class of the script's, which is not imported to look at it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        return


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] in _KNOWN - {"__main__"}:
            importlib.import_module(module)
            return super().find_class(module, name)
        return type(name, (Stub,), {})


class _Lenient:
    """What ``torch.load`` wants of a pickle module."""

    __name__ = "lenient"
    Unpickler = _Unpickler
    load = staticmethod(pickle.load)


def main(reference: str, distributed: str, paths: list[str]) -> list[dict[str, Any]]:
    pairs = (compare(path, Path(reference, path), Path(distributed, path)) for path in paths)
    return [pair for pair in pairs if pair]


def compare(path: str, one: Path, other: Path) -> dict[str, Any]:
    """Nothing, if the reference's is no checkpoint."""
    try:
        wanted = _load(one)
    except Exception:
        return {}
    try:
        found = _load(other)
    except Exception as error:
        problem = f"the ranks' file cannot be loaded: {_one_line(error)}"
        return {"path": path, "problem": problem, "difference": 0.0, "state": 0.0}
    leaves, twins = _placeless(wanted, path, one), _placeless(found, path, other)
    plain = {(_PREFIX.sub(r"\1", name), state): value for (name, state), value in leaves.items()}
    unprefixed = plain.keys() == twins.keys() != leaves.keys()
    leaves = plain if unprefixed else leaves
    problem = _keys(set(leaves), set(twins)) or _shapes(leaves, twins)
    weights, state = (0.0, 0.0) if problem else _differences(leaves, twins)
    pair = {"path": path, "problem": problem, "difference": weights, "state": state}
    return {**pair, "unprefixed": unprefixed}


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_Lenient)


def _placeless(value: Any, path: str, file: Path) -> dict[tuple[str, bool], Any]:
    """The leaves; names (a checkpoint's path as a key) do not say in which copy that is."""
    folder = str(file).removesuffix(path)
    return {(name.replace(folder, ""), state): leaf for (name, state), leaf in _leaves(value)}


def _leaves(
    value: Any, name: str = "", state: bool = False
) -> Iterator[tuple[tuple[str, bool], Any]]:
    """Tensors and numbers by their name ("model/fc.weight") and whether they are an optimizer's."""
    if isinstance(value, dict):
        state = state or {"state", "param_groups"} <= set(map(str, value))
        for key, each in value.items():
            yield from _leaves(each, f"{name}/{key}" if name else str(key), state)
    elif isinstance(value, (list, tuple)):
        for place, each in enumerate(value):
            yield from _leaves(each, f"{name}/{place}" if name else str(place), state)
    elif isinstance(value, (Tensor, float)):
        yield (name, state), value
    elif isinstance(value, (Stub, torch.nn.Module)):
        yield from _leaves(dict(vars(value)), name, state)


def _keys(wanted: set[tuple[str, bool]], found: set[tuple[str, bool]]) -> str:
    names, twins = {name for name, _ in wanted}, {name for name, _ in found}
    if names == twins:
        return ""
    if {_PREFIX.sub(r"\1", name) for name in twins} == names:
        return "the ranks' keys have a `module.` prefix, the original's have none"
    parts = (("missing", names - twins), ("extra", twins - names))
    return "; ".join(f"{kind} keys: {_some(part)}" for kind, part in parts if part)


def _shapes(leaves: dict[Any, Any], twins: dict[Any, Any]) -> str:
    for key, value in leaves.items():
        shapes = _kind(value), _kind(twins[key])
        if shapes[0] != shapes[1]:
            return f"{key[0]} is {shapes[1]}, not {shapes[0]}"
    return ""


def _kind(value: Any) -> str:
    """A best accuracy may be a number here and a tensor of one there."""
    if isinstance(value, Tensor) and value.dim():
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return "a number"


def _differences(leaves: dict[Any, Any], twins: dict[Any, Any]) -> tuple[float, float]:
    """The largest relative difference of what is no optimizer's, and of what is."""
    worst = {False: 0.0, True: 0.0}
    for state in worst:
        chosen = [key for key in leaves if key[1] is state and not _RANDOM.search(key[0])]
        flat = [(_flat(leaves[key]), _flat(twins[key])) for key in chosen]
        count = sum(one.numel() for one, _ in flat)
        typical = math.hypot(*(float(one.norm()) for one, _ in flat)) / math.sqrt(max(count, 1))
        worst[state] = max((_relative(*pair, typical) for pair in flat), default=0.0)
    return worst[False], worst[True]


def _flat(value: Any) -> Tensor:
    return torch.as_tensor(value).detach().to(torch.float64).flatten()


def _relative(one: Tensor, other: Tensor, typical: float) -> float:
    same = (one == other) | (one.isnan() & other.isnan())
    apart = float((one - other)[~same].norm())
    scale = max(float(one.norm()), SMALLEST_ELEMENT * typical * math.sqrt(one.numel()))
    if not apart:
        return 0.0
    return apart / scale if scale and math.isfinite(apart) else math.inf


def _some(names: set[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:_MOST]) + (f", … ({len(shown)})" if len(shown) > _MOST else "")


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
