"""What values hold: containers, objects, bound methods, and functions of what is around them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.details import Partial
from ddpify.facts.joining import parts_of
from ddpify.facts.scopes import ClassInfo, FunctionInfo, functions_in
from ddpify.facts.values import Kind, Thing, Value

DEEP = 5  # objects in objects that are looked into


def held_in(value: Value) -> Iterable[Thing]:
    """The things that a value is, and those in its containers, objects and bound methods."""
    found = dict.fromkeys(value.things)
    level = list(found)
    for _ in range(DEEP):
        inner = (t for thing in level for part in _parts(thing) for t in part.things)
        level = [thing for thing in dict.fromkeys(inner) if thing not in found]
        found |= dict.fromkeys(level)
    return found


def _parts(thing: Thing) -> tuple[Value, ...]:
    if thing.kind in (Kind.TUPLE, Kind.DICT, Kind.ITERATOR, Kind.PROGRESS):
        return (*parts_of(thing), *thing.over)
    if thing.kind in (Kind.INSTANCE, Kind.ARGUMENT):
        return tuple(thing.attrs.values())
    if isinstance(thing.ref, FunctionInfo) and thing.receiver is None:
        return _closed_over(thing.ref)
    given = thing.detail(Partial)
    bound = (given.args + tuple(given.kwargs.values())) if given is not None else ()
    return (*bound, Value((thing.receiver,))) if thing.receiver is not None else bound


def _closed_over(info: FunctionInfo) -> tuple[Value, ...]:
    """What a function takes from around it: no name that it gives, or is given, a value itself."""
    nodes = list(ast.walk(info.node))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    given = {node.arg for node in ast.walk(info.node.args) if isinstance(node, ast.arg)}
    outer = {name for n in nodes if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
    stored = (n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return taken(info, names - given - ({node.id for node in stored} - outer))


def taken(info: FunctionInfo, names: set[str]) -> tuple[Value, ...]:
    """What these names stand for around a function."""
    around = info.closure.lookup if info.closure is not None else info.module.globals.get
    return tuple(value for value in map(around, sorted(names)) if value is not None)


def read_by(info: FunctionInfo) -> Iterator[Value]:
    """What a function takes from around it, but for what it only asks the length of; of an object
    whose attribute it names, that: ``len(self.loader) * self.epochs`` reads ``epochs``."""
    nodes = list(ast.walk(info.node))
    calls = (n for n in nodes if isinstance(n, ast.Call) and ast.unparse(n.func) == "len")
    measured = {id(argument) for call in calls for argument in call.args}
    named = {id(n.value): n for n in nodes if isinstance(n, ast.Attribute)}
    for node in nodes:
        if not isinstance(node, ast.Name) or id(node) in measured:
            continue
        attribute = named.get(id(node))
        for value in taken(info, {node.id}):
            if attribute is None:
                yield value
            elif id(attribute) not in measured:
                yield from (part for t in value.things for part in _attribute(t, attribute.attr))


def _attribute(thing: Thing, name: str) -> Iterator[Value]:
    """What is read where an attribute is: a method that does not say ``self`` reads no object."""
    kept = thing.attrs.get(name) if thing.kind is Kind.INSTANCE else None
    found = thing.ref.lookup(name) if isinstance(thing.ref, ClassInfo) else None
    methods = functions_in(found)
    if kept is not None:
        yield kept
    elif not methods or any(map(_says_own, methods)):
        yield Value((thing,))
    else:
        yield from (value for method in methods for value in _closed_over(method))


def _says_own(method: FunctionInfo) -> bool:
    own = {argument.arg for argument in method.node.args.args[:1]} | {"super"}
    return any(isinstance(n, ast.Name) and n.id in own for n in ast.walk(method.node))
