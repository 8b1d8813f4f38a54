"""Conditions on all the samples of a batch together, in code that a model runs. ::

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
from ddpify.facts.joining import flat_measure
from ddpify.facts.masks import bindings, stores_where
from ddpify.facts.measures import ENTRIES
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Measure, Value
from ddpify.source import Site

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
