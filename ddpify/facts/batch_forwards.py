"""Forwards in which a sample's output depends on the other samples of its batch. ::

    def forward(self, x):
        x = x - x.mean(0)                      # centred by the batch
        alike = (x @ x.t()).softmax(-1)        # attention from sample to sample

A rank would see 1/N of them. Batch norms are layers, and a matter of their own (DDP305).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.coupling import certain
from ddpify.facts.details import Coupling
from ddpify.facts.events import Bind, Call, Forward
from ddpify.facts.fresh import method_of
from ddpify.facts.joining import with_parts
from ddpify.facts.own_branches import deciding
from ddpify.facts.protocol import Machine
from ddpify.facts.record import Event
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.values import Kind, Measure, Thing, Value, one
from ddpify.facts.whole_forwards import opened
from ddpify.source import Site


def comparing(m: Machine, trained: Iterable[Forward]) -> tuple[Site, ...]:
    """Where models that are trained compare samples, the modules that they call included."""
    found: set[Site] = set()
    seen: set[FunctionInfo] = set()  # each is read once, as its first caller calls it
    for forward in trained:
        if forward.model.kind is Kind.WRAPPED and not m.exhausted:
            found |= set(_compared(m, forward, seen))
    return tuple(sorted(found))


def _compared(m: Machine, forward: Forward, seen: set[FunctionInfo]) -> Iterator[Site]:
    with m.aside():
        todo = [(forward.model, forward.call)]
        while todo:
            model, call = todo.pop()
            info = method_of(model, "forward")
            if info is None or info in seen:
                continue
            seen.add(info)
            before = sum(1 for _ in m.events)
            result = _read(m, forward, model, info, call)
            yield from (thing.born for thing in certain(with_parts(result)))
            read = list(m.events)[before:]
            yield from deciding(m, {info, *_entered(read)})
            inner = [event for event in read if isinstance(event, Forward)]
            todo += [(event.model, event.call) for event in inner]


def _entered(events: Iterable[Event]) -> Iterator[FunctionInfo]:
    """The functions of the project in which something of this happened."""
    for event in events:
        if isinstance(event, (Call, Bind)) and event.where.function is not None:
            yield event.where.function


def _read(m: Machine, forward: Forward, model: Thing, info: FunctionInfo, call: Call) -> Value:
    if call.star or call.bound:  # which is which is not known: all that has to be given is
        rows = Value((), frozenset({forward.output}), Measure.SAMPLES, rows=True)
        args, kwargs = (rows,) * (_wanted(info) - 1), {}
    else:
        args = tuple(_from_layers(value, forward) for value in call.args)
        kwargs = {name: _from_layers(value, forward) for name, value in call.kwargs.items()}
    return m.enter(call.where.frame, info, (one(opened(model)), *args), kwargs, call.site)


def _wanted(info: FunctionInfo) -> int:
    """How many arguments a method has to be given, itself included."""
    spec = info.node.args
    return len(spec.posonlyargs) + len(spec.args) - len(spec.defaults)


def _from_layers(value: Value, forward: Forward) -> Value:
    """A tensor of samples as one that gradients go through, and nothing else is known of."""
    if value.measure is not Measure.SAMPLES or value.of(Kind.TUPLE, Kind.ITERATOR):
        return value
    kept = frozenset(dep for dep in value.deps if dep.detail(Coupling) is None)
    return Value((), kept | {forward.output}, value.measure, rows=True, axis=value.axis)
