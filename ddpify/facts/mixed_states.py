"""States of recurrent layers that are reshaped so that a row holds values of several samples.

A state has its layers and directions first, then the samples. Without a transpose before it a view
goes through all samples of a layer, then through those of the next. ::

    output, (last, _) = self.lstm(x)          # last: (2, batch, hidden) of two directions
    rows = last.view(-1, 2 * self.hidden)     # the first row: samples 0 and 1, one direction

That trains, though not what it was meant to, and in a share of the batch other samples meet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.bodies import stored
from ddpify.facts.details import call_that_made
from ddpify.facts.recurrent import RECURRENT
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import NOTHING, Thing
from ddpify.source import Site

ROWS = 3  # at the most so many axes: `state.view(layers, directions, batch, size)` is none


def mixed(info: ClassInfo, model: Thing) -> Iterator[Site]:
    """Where a class of models puts a state so."""
    methods = {n.name: n for n in info.node.body if isinstance(n, ast.FunctionDef)}
    todo = [(name, state) for name, node in methods.items() for state in _states(model, node)]
    seen: set[tuple[str, str]] = set()
    while todo:
        name, state = todo.pop()
        if (name, state) in seen:
            continue
        seen.add((name, state))
        for call in (n for n in ast.walk(methods[name]) if isinstance(n, ast.Call)):
            if _flattens(call, state):
                yield info.module.source.site(call)
            method = methods.get(call.func.attr) if isinstance(call.func, ast.Attribute) else None
            names = [one.arg for one in method.args.args[1:]] if method is not None else []
            given = zip(names, call.args, strict=False)
            todo += [(method.name, arg) for arg, one in given if method and _is(one, state)]


def _states(model: Thing, method: ast.FunctionDef) -> Iterator[str]:
    """The names that a method has for nothing but states of several layers or directions."""
    for node in (n for n in ast.walk(method) if isinstance(n, ast.Assign)):
        target, func = node.targets[0], (
            node.value.func if isinstance(node.value, ast.Call) else None
        )
        pair = target.elts if isinstance(target, ast.Tuple) else []
        if (
            len(pair) != 2
            or not isinstance(func, ast.Attribute)
            or ast.unparse(func.value) != "self"
        ):
            continue
        layers = model.attrs.get(func.attr, NOTHING).things
        if layers and all(map(_is_deep, layers)):
            yield from (name for name in stored([pair[1]]) if _bindings(method, name) == 1)


def _is_deep(layer: Thing) -> bool:
    """Whether a recurrent layer is known to have several layers, or two directions."""
    made = call_that_made(layer)
    if layer.name not in RECURRENT or made is None:
        return False
    depth = made.arg(2, "num_layers")
    several = depth is not None and isinstance(depth.const, int) and depth.const > 1
    both = made.kwargs.get("bidirectional", NOTHING)
    return several or both.const is True


def _bindings(method: ast.FunctionDef, name: str) -> int:
    stores = (n for n in ast.walk(method) if isinstance(n, ast.Name) and n.id == name)
    return sum(isinstance(n.ctx, ast.Store) for n in stores)


def _flattens(call: ast.Call, state: str) -> bool:
    """``state.view(-1, 256)``, ``state.reshape(x.size(0), -1)``."""
    if not isinstance(call.func, ast.Attribute) or not _is(call.func.value, state):
        return False
    if call.func.attr not in ("view", "reshape") or not 1 < len(call.args) <= ROWS:
        return False
    first = ast.unparse(call.args[0])
    return first == "-1" or first.endswith((".size(0)", ".shape[0]")) or first.startswith("len(")


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
