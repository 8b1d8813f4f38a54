"""Models behind their wrapper, and out of it."""

from __future__ import annotations

from ddpify.facts.details import Wrapper
from ddpify.facts.joining import join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import Kind, Value, one
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
        outer.describe(Wrapper(name))
        wrapped.append(outer)
    return Value(tuple(dict.fromkeys(wrapped)), value.deps)


def unwrapped(value: Value) -> Value:
    """The inner module of each wrapped model."""
    inner = [t.inner if t.kind is Kind.WRAPPED and t.inner else one(t) for t in value.things]
    return join(*inner) if inner else value
