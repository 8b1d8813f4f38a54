"""Where gradients go: what leads back to a model's output, and what ends that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call
from ddpify.facts.protocol import Machine
from ddpify.facts.values import Kind, Thing, Value, one
from ddpify.python import words

DETACHES: Final = frozenset({"detach", "detach_"})


def with_graph(m: Machine, call: Call, output: Thing) -> frozenset[Thing]:
    """The output of a call and, where gradients are on, what leads back to it."""
    if call.where.no_grad:
        return frozenset({output})
    graph = m.make(Kind.GRAPH, call.where.frame, call.site, output.name)
    graph.inner = one(output)
    return frozenset({output, graph})


def without_graph(value: Value) -> Value:
    """What ``detach()`` gives: computed from a model's output still, and the end of gradients."""
    if not any(d.kind is Kind.GRAPH for d in value.deps):
        return value
    return value.but(deps=frozenset(d for d in value.deps if d.kind is not Kind.GRAPH))


def behind(deps: Iterable[Thing]) -> set[Thing]:
    """The outputs of models to which gradients go back from what has these dependencies."""
    return {output for d in deps if d.kind is Kind.GRAPH for output in d.stands_for}


def without_grad(value: Value, before: bool) -> bool:
    """Whether gradients are off in a context, or a function it decorates; ``before``: around it.

    Where that is not known they are on: what is taken for trained is looked at more closely.
    """
    off = before
    for thing in value.things:
        if thing.name in words.GRAD:
            return False
        if thing.name in words.NO_GRAD:
            call = call_that_made(thing)
            if call is not None and (call.args or call.kwargs):  # inference_mode(not training)
                return False
            off = True
    return off
