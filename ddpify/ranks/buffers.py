"""Whether a wrapped model is sure to have buffers: DDP synchronises those in forwards."""

from __future__ import annotations

import ast

from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.modules import ClassDefinition

_LAYERS = ("torch.nn.BatchNorm", "torch.nn.SyncBatchNorm", "torch.nn.LazyBatchNorm")
_ZOO = ("resne", "mobilenet", "densenet", "efficientnet", "regnet", "shufflenet", "inception")


def has_buffers(wrapper: RankThing) -> bool:
    """``wrapper`` is the DDP object. A buffer registered under a condition may be absent."""
    call = wrapper.call
    if call is None:
        return False
    for keyword in ("broadcast_buffers", "forward_sync_buffers"):
        if keyword in call.kwargs and call.kwargs[keyword].constant is not True:
            return False
    inner = wrapper.attrs.get("module")
    return inner is not None and _value(inner)


def _value(inner: RankValue) -> bool:
    items = [thing for item in inner.items or () for thing in item.things]
    return any(map(_thing, items)) or (bool(inner.things) and all(map(_thing, inner.things)))


def _thing(thing: RankThing) -> bool:
    if thing.cls is not None:
        return class_has_buffers(thing.cls, set())
    if thing.kind != "result" or thing.call is None:
        return False
    if thing.name.startswith(_LAYERS):
        return True
    if thing.name.startswith("torchvision.models.") and any(z in thing.name for z in _ZOO):
        return True
    return thing.name.startswith("torch.nn.Sequential") and any(map(_value, thing.call.args))


def class_has_buffers(info: ClassDefinition, seen: set[ClassDefinition]) -> bool:
    """Whether ``__init__`` makes a batch norm or registers a buffer, whatever it is given."""
    seen.add(info)
    method = info.method("__init__")
    if method is None or isinstance(method.node, ast.Lambda):
        return False
    for statement in method.node.body:
        if isinstance(statement, (ast.If, ast.Try, ast.While)):
            continue
        if any(
            _makes(info, node, seen) for node in ast.walk(statement) if isinstance(node, ast.Call)
        ):
            return True
    return False


def _makes(info: ClassDefinition, node: ast.Call, seen: set[ClassDefinition]) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if (
        name.startswith(("BatchNorm", "SyncBatchNorm", "LazyBatchNorm"))
        or name == "register_buffer"
    ):
        return True
    other = info.module.classes.get(name)
    return other is not None and other not in seen and class_has_buffers(other, seen)
