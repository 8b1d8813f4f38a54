"""States that a recurrent model hands on from batch to batch: each rank keeps those of its samples.

``states`` begin as zeros, come out of the model, are detached and go into it again: the n-th
sample's from the n-th sample. Zeros for this rank's samples alone then do all that has to be done.
The recurrent layer also says along which axis its input holds samples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpify.facts import roles
from ddpify.facts.bodies import loaded, stored
from ddpify.facts.details import call_that_made
from ddpify.facts.events import Forward
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.values import Kind, Thing
from ddpify.source import Site

RECURRENT = frozenset({"torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN"})
# Layers that leave the axes before the last one alone.
POINTWISE = ("torch.nn.Embedding", "torch.nn.Dropout", "torch.nn.Linear")
ZEROS = frozenset({"torch.zeros"})
# What may be done to a state between two batches.
HANDED_ON = frozenset("detach detach_ data to cuda cpu clone requires_grad_".split())
HELPERS = frozenset("tuple list isinstance type map".split())
MOVES = frozenset("to cuda cpu double float half".split())
VARIABLE = "torch.autograd.Variable"


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
    layers = [_layer(m, forward, name) for forward in forwards]
    if not layers or not all(layers):
        return None
    scope = tree.function(node)
    inside = set(tree.nodes(node))
    here = [n for n in tree.nodes(scope) if isinstance(n, (ast.Name, ast.stmt))]
    here = [n for n in here if tree.function(n) is scope]
    uses = [n for n in here if isinstance(n, ast.Name) and n.id == name]
    if any(isinstance(n.ctx, ast.Load) and n not in inside for n in uses):
        return None
    calls = {n for x in forwards if (n := tree.expression(x.call.site)) is not None}
    begun: list[ast.expr] = []
    for statement in (n for n in here if isinstance(n, ast.stmt)):
        if isinstance(statement, (ast.For, ast.With, ast.If, ast.While, ast.Try)):
            if name in stored(_bound_by(statement)):
                return None
        elif name in stored([statement]):
            value = statement.value if isinstance(statement, ast.Assign) else None
            if value is None or (statement in inside and not _goes_on(m, f, statement, calls)):
                return None
            begun += [] if statement in inside else [value]
    sizes = [size for value in begun for size in _sizes(m, f, value)]
    if not begun or None in sizes:
        return None
    axes = {axis for one in layers if one is not None for axis in (one.axis,)}
    sites = tuple(tree.site(size) for size in sizes if size is not None)
    return States(sites, axes.pop() if len(axes) == 1 else None)


def _bound_by(statement: ast.stmt) -> list[ast.AST]:
    if isinstance(statement, ast.For):
        return [statement.target]
    return list(statement.items) if isinstance(statement, ast.With) else []


# -- the model


@dataclass(frozen=True)
class _Layer:
    axis: int | None


def _layer(m: Machine, forward: Forward, name: str) -> _Layer | None:
    """The recurrent layer that a model gives the states to, and gives back those of."""
    model = roles.whole(forward.model)
    method = model.ref.lookup("forward") if isinstance(model.ref, ClassInfo) else None
    infos = [t.ref for t in method.things] if method is not None else []
    call = m.tree(forward.call.site.path).expression(forward.call.site)
    if len(infos) != 1 or not isinstance(infos[0], FunctionInfo) or not isinstance(call, ast.Call):
        return None
    node = infos[0].node
    places = [i for i, given in enumerate(call.args) if _is(given, name)]
    if len(places) != 1 or isinstance(node, ast.Lambda) or len(node.args.args) <= places[0] + 1:
        return None
    if sum(name in loaded(given) for given in (*call.args, *call.keywords)) != 1:
        return None
    return _read(model, node.body, node.args.args[places[0] + 1].arg)


def _read(model: Thing, body: Sequence[ast.stmt], state: str) -> _Layer | None:
    """Follow a ``forward`` to its one recurrent call, which takes the state and makes the next."""
    layer: _Layer | None = None
    made: set[str] = set()
    pointwise = True
    for statement in body:
        if isinstance(statement, ast.Return):
            return layer if _gives_last(statement.value, made) else None
        if not isinstance(statement, (ast.Assign, ast.Expr)) or made & stored([statement]):
            return None
        if layer is not None:
            continue
        if state in loaded(statement):
            layer, made = _recurrent(model, statement, state, pointwise)
            if layer is None:
                return None
        elif isinstance(statement, ast.Assign):
            pointwise &= _is_pointwise(model, statement.value)
    return None


def _recurrent(
    model: Thing, statement: ast.Assign | ast.Expr, state: str, pointwise: bool
) -> tuple[_Layer | None, set[str]]:
    """``out, state = self.lstm(x, state)``: the layer, and what the new state is called."""
    call, thing = statement.value, _called(model, statement.value)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    pair = target.elts if isinstance(target, ast.Tuple) else []
    if thing is None or thing.name not in RECURRENT or not isinstance(call, ast.Call):
        return None, set()
    if len(call.args) != 2 or not _is(call.args[1], state) or len(pair) != 2:
        return None, set()
    straight = pointwise and _is_pointwise(model, call.args[0])
    return _Layer(_axis(thing) if straight else None), stored([pair[1]])


def _is_pointwise(model: Thing, value: ast.expr) -> bool:
    """Whether the axes of an input but the last are where they were."""
    if isinstance(value, ast.Name):
        return True
    thing = _called(model, value)
    if thing is None or thing.name not in POINTWISE or not isinstance(value, ast.Call):
        return False
    return all(_is_pointwise(model, argument) for argument in value.args)


def _gives_last(value: ast.expr | None, made: set[str]) -> bool:
    """Whether the last of what is returned is the new state, as it is."""
    last = value.elts[-1] if isinstance(value, ast.Tuple) and value.elts else None
    names = set(loaded(last)) if last is not None else set()
    return bool(names) and names <= made and isinstance(last, (ast.Name, ast.Tuple))


def _called(model: Thing, call: ast.expr | None) -> Thing | None:
    """The layer of the model that is called: ``self.layer(...)``."""
    func = call.func if isinstance(call, ast.Call) else None
    if not isinstance(func, ast.Attribute) or not _is(func.value, "self"):
        return None
    found = model.attrs.get(func.attr)
    return found.things[0] if found is not None and len(found.things) == 1 else None


def _axis(layer: Thing) -> int | None:
    made = call_that_made(layer)
    given = made.kwargs.get("batch_first") if made is not None and not made.star else None
    if made is None or made.star or len(made.args) > 4:
        return None
    if given is None:
        return 1
    return (0 if given.const else 1) if isinstance(given.const, bool) else None


# -- the states


def _goes_on(m: Machine, f: Frame, statement: ast.stmt, calls: set[ast.expr]) -> bool:
    """Whether the states come out of the model, or are the same without their history."""
    assert isinstance(statement, ast.Assign)
    value, target = statement.value, statement.targets[-1]
    if value in calls:
        return isinstance(target, ast.Tuple) and isinstance(target.elts[-1], ast.Name)
    if not isinstance(target, ast.Name):
        return False
    functions = [_function(m, f, n) for n in ast.walk(value) if isinstance(n, ast.Call)]
    own = [one for one in functions if one is not None]
    return all(_keeps(m, f, node, own) for node in (value, *(one.node for one in own)))


def _keeps(m: Machine, f: Frame, node: ast.AST, functions: list[FunctionInfo]) -> bool:
    """Whether all calls only take a state apart, detach it and put it together again."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            method = inner.func.attr if isinstance(inner.func, ast.Attribute) else ""
            plain = isinstance(inner.func, ast.Name) and inner.func.id in HELPERS
            own = _function(m, f, inner) in functions
            known = plain or own or method in HANDED_ON
            if not known and not _is_external(m, f, inner.func, {VARIABLE}):
                return False
        elif isinstance(inner, ast.BinOp):
            return False
    return True


def _function(m: Machine, f: Frame, call: ast.Call) -> FunctionInfo | None:
    value = f.lookup(call.func.id) if isinstance(call.func, ast.Name) else None
    refs = [t.ref for t in value.things] if value is not None else []
    return refs[0] if len(refs) == 1 and isinstance(refs[0], FunctionInfo) else None


def _is_external(m: Machine, f: Frame, func: ast.expr, names: set[str] | frozenset[str]) -> bool:
    value = m.values.get(m.site(f, func))
    return value is not None and any(
        t.kind is Kind.EXTERNAL and t.name in names for t in value.things
    )


def _sizes(m: Machine, f: Frame, value: ast.expr) -> Iterator[ast.expr | None]:
    """Of each ``torch.zeros(layers, samples, width)`` the second argument; None for all else."""
    if isinstance(value, (ast.Tuple, ast.List)):
        for part in value.elts:
            yield from _sizes(m, f, part)
        return
    while isinstance(value, ast.Call):
        if _is_external(m, f, value.func, ZEROS):
            yield value.args[1] if len(value.args) == 3 else None
            return
        if isinstance(value.func, ast.Attribute) and value.func.attr in MOVES:
            value = value.func.value
        elif _is_external(m, f, value.func, {VARIABLE}) and value.args:
            value = value.args[0]
        else:
            break
    yield None


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
