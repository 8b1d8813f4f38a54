"""States that a recurrent model hands on from batch to batch: each rank keeps those of its samples.

``states`` begin as zeros, come out of the model, are detached and go into it again: the n-th
sample's from the n-th sample. Zeros for this rank's samples alone then do all that has to be done.
The recurrent layer also says along which axis its input holds samples.

States of recurrent layers that are reshaped so that a row holds values of several samples.

A state has its layers and directions first, then the samples. Without a transpose before it a view
goes through all samples of a layer, then through those of the next. ::

    output, (last, _) = self.lstm(x)          # last: (2, batch, hidden) of two directions
    rows = last.view(-1, 2 * self.hidden)     # the first row: samples 0 and 1, one direction

That trains, though not what it was meant to, and in a share of the batch other samples meet.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ddpify.facts import roles
from ddpify.facts.bodies import stored
from ddpify.facts.details import call_that_made
from ddpify.facts.events import Forward
from ddpify.facts.fresh import MOVES, VARIABLE, factories
from ddpify.facts.protocol import Machine
from ddpify.facts.recurrent import RECURRENT, layer_of, takes_state
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo, the_function
from ddpify.facts.tree import Tree, is_name
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.source import Site

ZEROS = frozenset({"torch.zeros"})
# What may be done to a state between two batches.
HANDED_ON = frozenset("detach detach_ data to cuda cpu clone requires_grad_".split())
HELPERS = frozenset("tuple list isinstance type map".split())


# What is in their blocks is looked at by itself, and is another scope's in the last two.
COMPOUND = (ast.For, ast.With, ast.If, ast.While, ast.Try, ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class States:
    """A name that is carried from batch to batch: ``sizes`` are how many samples it begins with.

    ``axis`` is that of the samples in what the model is given beside it, where that is seen.
    """

    sizes: tuple[Site, ...]
    axis: int | None


def states(
    m: Machine, f: Frame, node: ast.For | ast.While, name: str, forwards: Sequence[Forward]
) -> States | None:
    """The states of this name, None where it cannot be proven that they are some."""
    tree = m.tree(f.module.source.path)
    handed = [f for f in forwards if takes_state(m, f, name)]
    layers = [layer_of(m, forward, name) for forward in handed]
    if not layers or not all(layers):
        return None
    scope = tree.function(node)
    inside = set(tree.nodes(node))
    here = [n for n in tree.nodes(scope) if isinstance(n, (ast.Name, ast.stmt))]
    here = [n for n in here if tree.function(n) is scope]
    uses = [n for n in here if isinstance(n, ast.Name) and n.id == name]
    around = {tree.function(n) for n in tree.nodes() if isinstance(n, ast.Name) and n.id == name}
    if any(name not in tree.bound(each) for each in around):  # another function reads or sets it
        return None
    if any(isinstance(n.ctx, ast.Load) and n not in inside for n in uses):
        return None
    calls = {n for x in forwards if (n := tree.expression(x.call.site)) is not None}
    begun: list[ast.expr] = []
    for statement in (n for n in here if isinstance(n, ast.stmt)):
        if isinstance(statement, COMPOUND):
            if name in stored(_bound_by(statement)):
                return None
        elif name in stored([statement]):
            value = statement.value if isinstance(statement, ast.Assign) else None
            if value is None or (statement in inside and not _goes_on(m, f, statement, calls)):
                return None
            begun += [] if statement in inside else [value]
    sizes = [size for value in begun for size in _sizes(m, tree, value)]
    if not begun or None in sizes:
        return None
    axes = {axis for one in layers if one is not None for axis in (one.axis,)}
    sites = tuple(tree.site(size) for size in sizes if size is not None)
    return States(sites, axes.pop() if len(axes) == 1 else None)


def _bound_by(statement: ast.stmt) -> list[ast.AST]:
    if isinstance(statement, ast.For):
        return [statement.target]
    return list(statement.items) if isinstance(statement, ast.With) else []


# -- the states


def _goes_on(m: Machine, f: Frame, statement: ast.stmt, calls: set[ast.expr]) -> bool:
    """Whether the states come out of the model, or are the same without their history."""
    assert isinstance(statement, ast.Assign)
    value, target = statement.value, statement.targets[-1]
    if value in calls:
        return isinstance(target, ast.Tuple) and isinstance(target.elts[-1], ast.Name)
    if not isinstance(target, ast.Name):
        return False
    functions = [_function(f, n) for n in ast.walk(value) if isinstance(n, ast.Call)]
    own = [one for one in functions if one is not None]
    return all(_keeps(m, f, node, own) for node in (value, *(one.node for one in own)))


def _keeps(m: Machine, f: Frame, node: ast.AST, functions: list[FunctionInfo]) -> bool:
    """Whether all calls only take a state apart, detach it and put it together again."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            method = inner.func.attr if isinstance(inner.func, ast.Attribute) else ""
            plain = isinstance(inner.func, ast.Name) and inner.func.id in HELPERS
            own = _function(f, inner) in functions
            known = plain or own or method in HANDED_ON
            if not known and not _is_external(
                m, m.tree(f.module.source.path), inner.func, {VARIABLE}
            ):
                return False
        elif isinstance(inner, ast.BinOp):
            return False
    return True


def _function(f: Frame, call: ast.Call) -> FunctionInfo | None:
    return the_function(f.lookup(call.func.id)) if isinstance(call.func, ast.Name) else None


def _is_external(m: Machine, tree: Tree, func: ast.expr, names: Collection[str]) -> bool:
    value = m.values.get(tree.site(func))
    return value is not None and any(
        t.kind is Kind.EXTERNAL and t.name in names for t in value.things
    )


def _sizes(m: Machine, tree: Tree, value: ast.expr | None) -> Iterator[ast.expr | None]:
    """Of each ``torch.zeros(layers, samples, width)`` the second argument; None for all else."""
    if isinstance(value, (ast.Tuple, ast.List)):
        for part in value.elts:
            yield from _sizes(m, tree, part)
        return
    while isinstance(value, ast.Call):
        method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        if method == "new_zeros" or _is_external(m, tree, value.func, ZEROS):
            yield _samples(value)
            return
        if method in MOVES and isinstance(value.func, ast.Attribute):
            value = value.func.value
        elif _is_external(m, tree, value.func, {VARIABLE}) and value.args:
            value = value.args[0]
        else:
            yield _given_size(m, tree, value)
            return
    yield None


def _samples(call: ast.Call) -> ast.expr | None:
    """Of ``torch.zeros(layers, samples, width)`` the second argument."""
    zeros = isinstance(call.func, ast.Attribute) and call.func.attr in ("zeros", "new_zeros", "new")
    return call.args[1] if zeros and len(call.args) == 3 else None


def _given_size(m: Machine, tree: Tree, call: ast.Call) -> ast.expr | None:
    """What a function is given as the number of samples of all states that it makes."""
    found = {c.target for c in roles.calls_of(m) if c.site == tree.site(call)}
    info = found.pop() if len(found) == 1 else None
    if info is None or isinstance(info.node, ast.Lambda):
        return None
    nodes = m.tree(info.module.source.path).nodes(info.node)
    made = [one if one is None else _samples(one) for one in factories(info)]
    sizes = [size for size in made if size is not None]
    if len(sizes) < len(made):
        return None
    parameters = [each.arg for each in info.node.args.args][info.owner is not None :]
    names = {size.id if isinstance(size, ast.Name) else "" for size in sizes}
    name = names.pop() if len(names) == 1 else ""
    uses = [n for n in nodes if isinstance(n, ast.Name) and n.id == name]
    place = parameters.index(name) if name in parameters else len(call.args)
    only = set(uses) == set(sizes) and not call.keywords
    return call.args[place] if only and place < len(call.args) else None


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
            todo += [(method.name, arg) for arg, one in given if method and is_name(one, state)]


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
    if not isinstance(call.func, ast.Attribute) or not is_name(call.func.value, state):
        return False
    if call.func.attr not in ("view", "reshape") or not 1 < len(call.args) <= ROWS:
        return False
    first = ast.unparse(call.args[0])
    return first == "-1" or first.endswith((".size(0)", ".shape[0]")) or first.startswith("len(")
