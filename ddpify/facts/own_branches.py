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

from ddpify.facts.counts import counts_only
from ddpify.facts.joining import flat_measure
from ddpify.facts.masks import stores_where
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
TESTS = (ast.If, ast.IfExp, ast.While)
CHANGES = (ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Break, ast.Continue)


def deciding(m: Machine, functions: Iterable[FunctionInfo]) -> Iterator[Site]:
    """Where these functions, as they were last read, decide so what becomes of the samples."""
    for info in functions:
        tree = m.tree(info.module.source.path)
        tests = (
            n for n in tree.nodes(info.node) if isinstance(n, TESTS) and _changes(n, info.node)
        )
        for test in (node.test for node in tests):
            if any(_of_all(m, tree, part) for part in ast.walk(test)):
                yield tree.site(test)


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


def _of_all(m: Machine, tree: Tree, node: ast.AST) -> bool:
    """Whether this is one number of all the samples of a batch."""
    value = m.values.get(tree.site(node), NOTHING) if isinstance(node, ast.expr) else NOTHING
    if isinstance(node, ast.Call):
        return value.measure not in ENTRIES and any(_joins(m, tree, node))
    return isinstance(node, ast.Name) and value.measure in OF_ALL and not counts_only(value)


def _joins(m: Machine, tree: Tree, node: ast.Call) -> Iterator[bool]:
    """Of what is called, and of what it is given, whether that is asked for a number of all."""
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in JOINED:
        for tensor in (called.value, *node.args):
            one = _is_entry(m, tree, tensor)
            yield not one and _samples(m.values.get(tree.site(tensor), NOTHING))


def _is_entry(m: Machine, tree: Tree, node: ast.expr) -> bool:
    """``labels[b]`` in ``for b in range(len(labels))``: of one sample, whichever rank has it."""
    index = node.slice if isinstance(node, ast.Subscript) else None
    loops = [n for n in tree.ancestors(node) if isinstance(n, ast.For)]
    over = [n.iter for n in loops if ast.unparse(n.target) == ast.unparse(index or node)]
    if index is None or not over or not isinstance(over[0], ast.Call):
        return False
    counts = [m.values.get(tree.site(one), NOTHING).measure for one in over[0].args[-1:]]
    return ast.unparse(over[0].func) == "range" and counts == [Measure.COUNT]


def _samples(value: Value) -> bool:
    return flat_measure(value) in OF_SAMPLES and not counts_only(value)
