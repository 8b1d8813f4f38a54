"""What Python's builtins return: len, enumerate, zip, getattr and the like."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddpify.facts.events import Call
from ddpify.facts.iteration import iterates
from ddpify.facts.scopes import Frame
from ddpify.facts.values import (
    NO_CONST,
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


ITERATION = frozenset("enumerate zip iter reversed list tuple sorted set next map filter".split())
PLAIN = frozenset("isinstance hasattr callable issubclass print".split())


def call_builtin(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    """The result of a builtin, None when it is not one of these."""
    if tail == "open":
        return one(m.make(Kind.FILE, f, call.site, "open"))
    if tail in ITERATION:
        return _iteration(m, f, tail, call)
    if tail == "dict":
        keys: dict[object, Value] = {name: value for name, value in call.kwargs.items()}
        return one(Thing(Kind.DICT, call.site, keys=keys))
    if tail in PLAIN:
        return NOTHING
    return _of_argument(m, f, tail, call) if call.args else None


def _of_argument(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    first = call.args[0]
    if tail == "len":
        return _length(first)
    if tail in SAME_NUMBER:
        return computed(*call.args, measure=first.measure)
    if tail in ("max", "min") and len(call.args) > 1:
        return join(*call.args).but(const=NO_CONST)
    if tail == "sum":
        element = m.element_of(f, first)
        return computed(first, element, measure=element.measure)
    if tail == "getattr" and len(call.args) > 1 and call.args[1].known:
        return _getattr(m, f, call)
    return computed(*call.args) if tail == "vars" else None


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
