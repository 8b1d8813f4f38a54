"""What Python's builtins return: len, enumerate, zip, getattr and the like."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpify.facts.events import Call
from ddpify.facts.iteration import iterates
from ddpify.facts.scopes import Frame
from ddpify.facts.values import (
    NOTHING,
    Kind,
    Measure,
    Thing,
    Value,
    computed,
    constant,
    flat_deps,
    join,
    one,
)

if TYPE_CHECKING:
    from ddpify.facts.machine import Machine

SAME_NUMBER = frozenset({"float", "int", "abs", "str", "round"})


def call_builtin(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    if tail == "open":
        return one(m.make(Kind.FILE, f, call.site, "open"))
    if tail in (
        "enumerate",
        "zip",
        "iter",
        "reversed",
        "list",
        "tuple",
        "sorted",
        "set",
        "next",
        "map",
        "filter",
    ):
        return _iteration(m, f, tail, call)
    if tail == "len":
        return _length(call.args[0] if call.args else NOTHING)
    if tail in SAME_NUMBER and call.args:
        return computed(*call.args, measure=call.args[0].measure)
    if tail in ("max", "min") and len(call.args) > 1:
        return join(*call.args).but(const=Value().const)
    if tail == "sum" and call.args:
        element = m.element_of(f, call.args[0])
        return computed(call.args[0], element, measure=element.measure)
    if tail == "getattr" and len(call.args) > 1 and call.args[1].known:
        return _getattr(m, f, call)
    if tail in ("dict",):
        keys: dict[object, Value] = {name: value for name, value in call.kwargs.items()}
        return one(Thing(Kind.DICT, call.site, keys=keys))
    if tail == "vars":
        return computed(*call.args)
    if tail in ("isinstance", "hasattr", "callable", "issubclass", "print"):
        return NOTHING
    return None


def _getattr(m: Machine, f: Frame, call: Call) -> Value:
    from ddpify.facts.expressions import attribute

    return attribute(m, f, call.args[0], str(call.args[1].const), ast.Pass())


def _length(value: Value) -> Value:
    if value.measure is Measure.SAMPLES:
        return computed(value, measure=Measure.COUNT)
    for thing in value.of(Kind.LOADER, Kind.DATASET):
        return Value((), frozenset({thing}))
    for thing in value.things:
        if thing.items is not None:
            return constant(len(thing.items))
    return computed(value, measure=value.measure if value.measure is Measure.COUNT else None)


def _iteration(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    if not call.args:
        return one(Thing(Kind.ITERATOR, call.site, inner=None))
    if tail == "next":
        return m.element_of(f, call.args[0])
    if tail == "zip":
        parts = tuple(m.element_of(f, a) for a in call.args)
        return iterates(m, f, call, one(Thing(Kind.TUPLE, call.site, items=parts)))
    if tail in ("map", "filter"):
        element = m.element_of(f, call.args[-1])
        result = iterates(m, f, call, element)
        return result.but(deps=flat_deps(call.args[-1]))
    element = m.element_of(f, call.args[0])
    if tail == "enumerate":
        index = one(m.make(Kind.INDEX, f, call.site, "enumerate"))
        element = one(Thing(Kind.TUPLE, call.site, items=(index, element)))
    return iterates(m, f, call, element).but(deps=flat_deps(call.args[0]))
