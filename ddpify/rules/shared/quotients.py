"""Sums that a loop adds up and what they are divided by, as they are written in one function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.ranks.model import Loop, Thing
from ddpify.ranks.passes import iterated
from ddpify.ranks.run import Run

_SIZES = frozenset({"len", "size", "numel", "shape", "nelement"})
_PASSED_ON = frozenset({"tensor", "as_tensor", "float", "item", "to", "cuda", "detach", "clone"})


@dataclass(frozen=True)
class Added:
    """``name += value`` in a loop over a loader; a list that grows counts as ``len(name) += 1``."""

    name: str
    node: ast.AST
    value: ast.expr
    loop: Loop
    loader: Thing


def loops_over(run: Run) -> Iterator[tuple[Loop, Thing]]:
    """Loops over the batches of loaders, each once."""
    done: set[tuple[ast.AST, Thing]] = set()
    for loop in run.loops:
        for loader in iterated(loop):
            if (loop.node, loader) not in done:
                done.add((loop.node, loader))
                yield loop, loader


def added(loop: Loop, loader: Thing) -> Iterator[Added]:
    """What the loop adds up."""
    for node in ast.walk(loop.node):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            yield Added(ast.unparse(base(node.target)), node, node.value, loop, loader)


def collected(loop: Loop, loader: Thing) -> Iterator[Added]:
    """The lengths of the lists that the loop fills."""
    for node in ast.walk(loop.node):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in ("append", "extend"):
            name = f"len({ast.unparse(called.value)})"
            yield Added(name, node, ast.Constant(1), loop, loader)


def base(node: ast.expr) -> ast.expr:
    """``totals`` of ``totals[0]``, ``hits`` of ``float(hits.item())``."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in _PASSED_ON:
                return node
            node = node.args[0] if node.func.attr in ("tensor", "as_tensor") else node.func.value
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _PASSED_ON:
            node = node.args[0]
        else:
            return node


def counts(value: ast.expr) -> bool:
    """Whether an expression is a number of samples: ``len(x)``, ``x.size(0)``, ``1``."""
    return isinstance(value, ast.Constant) or is_size(value)


def is_size(value: ast.expr) -> bool:
    """``len(x)``, ``x.size(0)``, ``x.shape[0]``."""
    node = value.func if isinstance(value, ast.Call) else value
    node = node.value if isinstance(node, ast.Subscript) else node
    word = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return word in _SIZES


def selects(value: ast.expr) -> bool:
    """Whether an expression counts where a condition holds: ``(target != pad).sum()``."""
    sums = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    if not sums or not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if value.func.attr in ("item", "float", "int", "long"):
        return selects(value.func.value)
    if value.func.attr not in ("sum", "count_nonzero"):
        return False
    compared = [n for n in ast.walk(value.func.value) if isinstance(n, ast.Compare)]
    return any(
        isinstance(n.ops[0], (ast.NotEq, ast.Gt, ast.Lt, ast.GtE, ast.LtE)) for n in compared
    )


def divisions(
    function: ast.AST,
) -> Iterator[tuple[ast.expr, ast.expr, ast.BinOp | ast.AugAssign]]:
    """``(sum, count, node)`` of ``sum / count`` and of ``sum /= count``."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.left, node.right, node
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node.target, node.value, node


def changed_between(function: ast.AST, name: str, after: ast.AST, before: ast.AST) -> bool:
    """Whether a call may have replaced or changed ``name`` between two lines: it may be reduced."""
    first, last = getattr(after, "end_lineno", 0), getattr(before, "lineno", 0)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and first < node.lineno < last:
            given = [*node.args, *(k.value for k in node.keywords)]
            if any(ast.unparse(n) == name for one in given for n in ast.walk(one) if _path(n)):
                return True
    return False


def _path(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))
