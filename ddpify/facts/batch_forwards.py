"""Forwards in which a sample's output depends on the other samples of its batch. ::

    def forward(self, x):
        x = x - x.mean(0)                      # centred by the batch
        alike = (x @ x.t()).softmax(-1)        # attention from sample to sample

A rank would see 1/N of them. Batch norms are layers, and a matter of their own (DDP305).

Functions that make batches in which samples depend on each other. ::

def collate(samples):
    x = torch.stack(samples)
    return (x - x.mean(0)) / x.std(0)      # of the batch: a rank makes one of 1/N of them

Conditions on all the samples of a batch together, in code that a model runs. ::

    def forward(self, x):
        h = self.body(x)
        if h.mean() > 0:            # of a rank's share the mean is another one
            h = h * 2

What a size, a shape or a setting decides is the same in every share, and what only prints or raises
changes no output.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ddpify.facts.counts import counts_only
from ddpify.facts.coupling import certain
from ddpify.facts.details import Coupling, call_that_made
from ddpify.facts.events import Bind, Call, Forward
from ddpify.facts.fresh import method_of
from ddpify.facts.joining import flat_measure, with_parts
from ddpify.facts.masks import bindings, stores_where
from ddpify.facts.measures import ENTRIES
from ddpify.facts.protocol import Machine
from ddpify.facts.record import Event
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value, one
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


def collating(m: Machine, trained: Iterable[Forward]) -> tuple[Site, ...]:
    """Where such functions of loaders that are trained on compare samples."""
    outputs: dict[Thing, Thing] = {}
    for forward in trained:
        given = (*forward.call.args, *forward.call.kwargs.values())
        for loader in (t for v in given for t in v.loaders() if t.kind is Kind.LOADER):
            outputs.setdefault(loader, forward.output)
    made = ((call_that_made(loader), output) for loader, output in outputs.items())
    found = {site for call, output in made if call is not None for site in _in(m, call, output)}
    return tuple(sorted(found))


def _in(m: Machine, call: Call, output: Thing) -> list[Site]:
    """Where the ``collate_fn`` of a loader compares the samples that it is given."""
    collate = call.arg(6, "collate_fn")
    if collate is None or call.star or m.exhausted:
        return []
    # What is of a model's output is looked at as what is trained: so is what a model is given.
    of_each = Value((), frozenset({output}), Measure.ENTRY)
    samples = Value((Thing(Kind.ITERATOR, call.site, inner=of_each),), measure=Measure.SAMPLES)
    with m.aside():
        result = m.apply(call.where.frame, collate, (samples.but(rows=True),), call.site)
        return [thing.born for thing in certain(with_parts(result))]


OF_ALL = (Measure.SUM, Measure.MEAN, Measure.RATIO)
OF_SAMPLES = (Measure.MIXED, *ENTRIES)
# What asks a tensor for one number of all its entries.
JOINED = frozenset(
    "all allclose amax amin any argmax argmin count_nonzero equal max mean median min norm prod std"
    " sum var".split()
)
CONVERTS = frozenset("float double half long int to item type_as".split())
TESTS = (ast.If, ast.IfExp, ast.While)
CHANGES = (ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Break, ast.Continue)


def deciding(m: Machine, functions: Iterable[FunctionInfo]) -> Iterator[Site]:
    """Where these functions, as they were last read, decide so what becomes of the samples."""
    for info in functions:
        read = _Read(m, m.tree(info.module.source.path), info.node)
        for node in read.tree.nodes(info.node):
            if isinstance(node, TESTS) and _changes(node, info.node):
                if any(map(read.of_all, ast.walk(node.test))):
                    yield read.tree.site(node.test)
            elif any(map(read.gates, _parts(node))):
                yield read.tree.site(node)


def _parts(node: ast.AST) -> list[ast.expr]:
    """What is calculated with, entry by entry: ``h * gate``, ``torch.where(gate, h, 0)``."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    picks = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "where"
    return node.args[:1] if picks and isinstance(node, ast.Call) else []


def _changes(node: ast.If | ast.IfExp | ast.While, scope: ast.AST) -> bool:
    """Whether a branch makes, or changes, anything: beyond what it prints, or raises."""
    if isinstance(node, ast.IfExp):
        return True
    if isinstance(node, ast.If) and stores_where(node, scope):
        return False  # as much as without the question
    inside = [part for statement in (*node.body, *node.orelse) for part in ast.walk(statement)]
    return any(isinstance(part, CHANGES) or _in_place(part) for part in inside)


def _in_place(node: ast.AST) -> bool:
    """``h.mul_(2)``"""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr.endswith("_")


@dataclass
class _Read:
    """A function of which the expressions were read."""

    m: Machine
    tree: Tree
    scope: ast.AST

    def of_all(self, node: ast.AST, depth: int = 3) -> bool:
        """Whether this is one number of all the samples of a batch, or what compares such a one."""
        value = self.value(node) if isinstance(node, ast.expr) else NOTHING
        if isinstance(node, ast.Call):
            return value.measure not in ENTRIES and self._joins(node)
        if not isinstance(node, ast.Name) or counts_only(value):
            return False
        return value.measure in OF_ALL or self._is_gate(node, depth)

    def gates(self, node: ast.expr, depth: int = 3) -> bool:
        """``h.mean() > 0``, also as a number, or by a name."""
        match node:
            case ast.Compare():
                sides = (node.left, *node.comparators)
                return any(self.of_all(side, depth) for side in sides)
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in CONVERTS:
                return self.gates(inner, depth)
            case ast.Call(func=ast.Name("float" | "int" | "bool"), args=[inner]):
                return self.gates(inner, depth)
            case ast.Call(func=ast.Attribute(attr="any" | "all")):
                return self.of_all(node, depth)
            case ast.BinOp(left=left, right=right):
                return self.gates(left, depth) or self.gates(right, depth)
            case ast.UnaryOp(operand=inner):
                return self.gates(inner, depth)
        return isinstance(node, ast.Name) and self._is_gate(node, depth)

    def _is_gate(self, node: ast.Name, depth: int) -> bool:
        made = self.made.get(node.id, []) if depth else []
        return any(self.gates(one, depth - 1) for one in made)

    @cached_property
    def made(self) -> dict[str, list[ast.expr]]:
        """What each name of this function is bound to."""
        return bindings(self.tree.nodes(self.scope))

    def _joins(self, node: ast.Call) -> bool:
        """Whether what is called, or what it is given, is asked for a number of all."""
        called = node.func
        if not isinstance(called, ast.Attribute) or called.attr not in JOINED:
            return False
        tensors = [one for one in (called.value, *node.args) if not _is_entry(self, one)]
        return any(_samples(self.value(tensor)) for tensor in tensors)

    def value(self, node: ast.expr) -> Value:
        return self.m.values.get(self.tree.site(node), NOTHING)


def _is_entry(read: _Read, node: ast.expr) -> bool:
    """``labels[b]`` in ``for b in range(len(labels))``: of one sample, whichever rank has it."""
    index = node.slice if isinstance(node, ast.Subscript) else None
    loops = [n for n in read.tree.ancestors(node) if isinstance(n, ast.For)]
    over = [n.iter for n in loops if ast.unparse(n.target) == ast.unparse(index or node)]
    if index is None or not over or not isinstance(over[0], ast.Call):
        return False
    counts = [read.value(one).measure for one in over[0].args[-1:]]
    return ast.unparse(over[0].func) == "range" and counts == [Measure.COUNT]


def _samples(value: Value) -> bool:
    return flat_measure(value) in OF_SAMPLES and not counts_only(value)
