"""Functions that only make new tensors, as ``init_hidden`` does: no weight is in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.roles import whole
from ddpify.facts.scopes import ClassInfo, FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Thing, Value

OF_TORCH = frozenset("zeros ones empty full randn rand".split())
OF_A_TENSOR = frozenset("new_zeros new_ones new_empty new_full".split())
MOVES = frozenset("to cuda cpu double float half".split())
VARIABLE = "torch.autograd.Variable"


def makes_anew(thing: Thing, name: str) -> bool:
    """Whether all that a model's method returns are tensors which it has made from numbers."""
    info = method_of(thing, name)
    found = list(factories(info)) if info is not None else []
    return bool(found) and None not in found


def able(receiver: Value, name: str) -> tuple[Thing, ...]:
    """What a method may be called of: of several models not one that has nothing of that name."""
    makes = [t for t in receiver.things if makes_anew(t, name)] if receiver.things[1:] else []
    return tuple(t for t in receiver.things if not makes or t in makes or not _lacks(t, name))


def _lacks(thing: Thing, name: str) -> bool:
    """Whether a model of the project has no such method, and no base but layers of torch."""
    model = whole(thing)
    info = model.ref if model.kind is Kind.MODEL and thing.part_of is None else None
    if not isinstance(info, ClassInfo) or any(_keeps(owner, name) for owner in (model, thing)):
        return False
    own = info.lookup(name) is None and info.lookup("__getattr__") is None
    return own and all(base.startswith("torch.nn.") for base in info.external_bases())


def _keeps(owner: Thing, name: str) -> bool:
    """Whether something was stored under a name: what is asked for is made up otherwise."""
    kept = owner.attrs.get(name, NOTHING).things
    return name in owner.attrs and any(t.name != f"{owner.name}.{name}" for t in kept)


def method_of(thing: Thing, name: str) -> FunctionInfo | None:
    """The project's function that a model, or the one in a wrapper, has under a name."""
    if thing.kind is Kind.WRAPPED:
        inner = thing.stands_for
        return method_of(inner[0], name) if len(inner) == 1 else None
    return thing.ref.method(name) if isinstance(thing.ref, ClassInfo) else None


def factories(info: FunctionInfo) -> Iterator[ast.Call | None]:
    """The calls that make what a function returns, None for what is made in another way."""
    if isinstance(info.node, ast.Lambda):
        yield None
        return
    for node in ast.walk(info.node):
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            yield None
        elif isinstance(node, ast.Return):
            yield from _made(info, node.value)


def _made(info: FunctionInfo, value: ast.expr | None) -> Iterator[ast.Call | None]:
    if isinstance(value, (ast.Tuple, ast.List)):
        for part in value.elts:
            yield from _made(info, part)
        return
    while isinstance(value, ast.Call):
        method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        name = qualified(info, value.func)
        if method in OF_A_TENSOR or (name.startswith("torch.") and method in OF_TORCH):
            yield value
            return
        if method == "zero_" and (old := _uninitialized(value)) is not None:
            yield old
            return
        if method in MOVES and isinstance(value.func, ast.Attribute):
            value = value.func.value
        else:
            value = value.args[0] if name == VARIABLE and value.args else None
    yield None


def _uninitialized(call: ast.Call) -> ast.Call | None:
    """``weight.new(layers, samples, width)`` of ``weight.new(…).zero_()``, which is new_zeros."""
    made = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute):
        return None
    return made if made.func.attr == "new" and made.args else None


def qualified(info: FunctionInfo, func: ast.expr) -> str:
    """The qualified name of a function of a library: ``torch.zeros``."""
    if isinstance(func, ast.Attribute):
        owner = qualified(info, func.value)
        return f"{owner}.{func.attr}" if owner else ""
    found = info.module.globals.get(func.id, NOTHING).things if isinstance(func, ast.Name) else ()
    return found[0].name if len(found) == 1 and found[0].kind is Kind.EXTERNAL else ""
