"""What a method makes with a layer and nothing reads: the layer gets no gradient.

The last layer of a chain whose sum of skips is what counts, as wave nets have it. ::

    for i in range(self.depth):
        skip = skip + self.skips[i](x)
        x = x + self.residuals[i](x)  # nobody reads what the last of `residuals` gives
    return self.end(skip)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.constructed import own

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def dropped(function: ast.FunctionDef, parts: frozenset[str]) -> Iterator[str]:
    """The parts of which no statement reads what they give last."""
    loads = [
        n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]
    for statement, around in _assignments(function, ()):
        used = _layers(statement.value, parts, around)
        names = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        plain = all(isinstance(n, ast.Name | ast.Tuple) for n in statement.targets)
        end = (statement.end_lineno or 0, statement.end_col_offset or 0)
        read = any(n.id in names and (n.lineno, n.col_offset) >= end for n in loads)
        if used and plain and not read and not _is_kept(function, names):
            again = sum(n.attr == used for n in own(function)) > 1
            if around or not again:
                yield used


def _assignments(
    node: ast.AST, around: tuple[ast.stmt, ...]
) -> Iterator[tuple[ast.Assign, tuple[ast.stmt, ...]]]:
    """Assignments, each with its loops; none that a condition on the round lets out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assign):
            yield child, around
        elif isinstance(child, _LOOPS):
            yield from _assignments(child, (*around, child))
        elif isinstance(child, ast.If) and around:
            continue
        elif isinstance(child, ast.stmt | ast.excepthandler):
            yield from _assignments(child, around)


def _layers(value: ast.expr, parts: frozenset[str], around: tuple[ast.stmt, ...]) -> str:
    """A part that a call in an expression is of: in a loop, one of its own in each round."""
    changing = {
        n.id
        for loop in around
        for n in ast.walk(loop)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for call in (n for n in ast.walk(value) if isinstance(n, ast.Call)):
        found = [n.attr for n in own(call.func) if n.attr in parts]
        words = {n.id for n in ast.walk(call.func) if isinstance(n, ast.Name)}
        if isinstance(call.func, ast.Name):  # `for conv, norm in zip(self.convs, self.norms)`
            found = [part for loop in around for part in _held(loop, call.func.id, parts)]
        if found and (not around or words & changing):
            return found[0]
    return ""


def _held(loop: ast.stmt, name: str, parts: frozenset[str]) -> list[str]:
    """The parts that a loop goes over, if that is what ``name`` is in it."""
    if not isinstance(loop, ast.For):
        return []
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    return [n.attr for n in own(loop.iter) if n.attr in parts and name in names]


def _is_kept(function: ast.FunctionDef, names: set[str]) -> bool:
    """Whether somebody else reads them: a function inside, or who has all names."""
    inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef | ast.Lambda)][1:]
    words = {n.id for one in inner for n in ast.walk(one) if isinstance(n, ast.Name)}
    outer = any(isinstance(n, ast.Global | ast.Nonlocal) for n in ast.walk(function))
    whole = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} & {"locals", "eval"}
    return bool(words & names) or outer or bool(whole)
