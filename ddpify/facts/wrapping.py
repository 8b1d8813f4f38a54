"""Models behind their wrapper, and out of it.

`model.module if isinstance(model, nn.DataParallel) else model`: scripts' own ways to unwrap.
"""

from __future__ import annotations

import ast

from ddpify.facts.containers import item_of
from ddpify.facts.details import Wrapper
from ddpify.facts.joining import join
from ddpify.facts.model import Home
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Thing, Value, constant, one
from ddpify.python.words import DDP
from ddpify.source import Site


def wrap(m: Machine, f: Frame, value: Value, site: Site, name: str) -> Value:
    """Each model the value may be, behind the wrapper ``name``."""
    wrapped = []
    for thing in value.things:
        if thing.kind is Kind.WRAPPED:
            wrapped.append(thing)
            continue
        if thing.kind is Kind.UNKNOWN:
            thing.kind = Kind.MODEL
        outer = m.make(Kind.WRAPPED, f, site, f"{name}#{thing.serial}")
        outer.inner = one(thing)
        outer.describe(Wrapper(name, m.now))
        wrapped.append(outer)
    return Value(tuple(dict.fromkeys(wrapped)), value.deps)


def apply(m: Machine, f: Frame, home: Home) -> None:
    """What is wrapped at a home, where its statement has just run."""
    node = ast.parse(home.target, mode="eval").body
    entry = ast.literal_eval(node.slice) if isinstance(node, ast.Subscript) else None
    named = node.value if isinstance(node, ast.Subscript) else node
    owner: Thing | None = None
    if isinstance(named, ast.Attribute):
        assert isinstance(named.value, ast.Name)
        base = f.lookup(named.value.id)
        owner = base.things[0] if base and base.things else None
        value = owner.attrs.get(named.attr) if owner else None
    else:
        assert isinstance(named, ast.Name)
        value = f.lookup(named.id)
    if value is None:
        return
    if entry is not None:
        _wrap_entry(m, f, value, entry, home.statement)
        return
    wrapped = _each(m, f, value, home) if home.each else wrap(m, f, value, home.statement, DDP)
    if owner is not None and isinstance(named, ast.Attribute):
        owner.attrs[named.attr] = wrapped
    elif isinstance(named, ast.Name):
        f.bind(named.id, wrapped)


def _wrap_entry(m: Machine, f: Frame, value: Value, key: object, site: Site) -> None:
    """``nets["g"] = wrap_model(nets["g"])``."""
    for thing in value.things:
        held = item_of(thing, constant(key))
        if held is None:
            continue
        wrapped = wrap(m, f, held, site, DDP)
        if thing.keys is not None:
            thing.keys[key] = wrapped
        elif thing.items is not None and isinstance(key, int) and key < len(thing.items):
            thing.items = (*thing.items[:key], wrapped, *thing.items[key + 1 :])


def _each(m: Machine, f: Frame, value: Value, home: Home) -> Value:
    """``[wrap_model(model) for model in models]``: another list, or dict, of the same."""
    made = []
    for thing in value.things:
        copy = m.make(thing.kind, f, home.statement, f"{thing.name}#{thing.serial}")
        inner = (wrap(m, f, held, home.statement, DDP) for held in (thing.inner,) if held)
        copy.inner = next(inner, None)
        items = thing.items
        copy.items = items and tuple(wrap(m, f, one, home.statement, DDP) for one in items)
        keys = thing.keys
        copy.keys = keys and {k: wrap(m, f, v, home.statement, DDP) for k, v in keys.items()}
        made.append(copy)
    return Value(tuple(made), value.deps)


def unwrapped(m: Machine, value: Value) -> Value:
    """The inner module of each wrapped model, which of a sharded one is itself."""
    if m.target.shards:
        return value
    inner = [t.inner if t.kind is Kind.WRAPPED and t.inner else one(t) for t in value.things]
    return join(*inner) if inner else value


def unwrapped_model(node: ast.AST | None) -> ast.expr | None:
    """The `model` of such an expression (the one before `.module`), None for other code.

    Whatever the test is: `model.module` is there only where the model is wrapped.
    """
    if not isinstance(node, ast.IfExp):
        return None
    for inner, other in ((node.body, node.orelse), (node.orelse, node.body)):
        if isinstance(inner, ast.Attribute) and inner.attr == "module":
            return inner.value if ast.unparse(inner.value) == ast.unparse(other) else None
    return None
