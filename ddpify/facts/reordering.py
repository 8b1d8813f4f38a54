"""Models that put the samples of a batch into another order, and leave them so. ::

lengths, order = lengths.sort(descending=True)
rows = rows[order]                                # and no `rows[order.argsort()]`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.scopes import ClassInfo

ORDERS = frozenset({"sort", "argsort", "randperm"})


def reorders(info: ClassInfo) -> bool:
    """Whether a ``forward`` sorts or shuffles samples, and never puts them back."""
    for method in info.node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "forward":
            orders = set(_orders(method))
            if any(_takes(n, orders) for n in ast.walk(method)):
                return not any(_puts_back(n, orders) for n in ast.walk(method))
    return False


def _orders(method: ast.FunctionDef) -> Iterator[str]:
    """``_, order = lengths.sort()``, ``order = torch.argsort(lengths)``: along the first axis."""
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and (call := _ordering(node.value)) is not None:
            name = ast.unparse(call.func).rpartition(".")[2]
            target: ast.expr = node.targets[0]
            if name == "sort" and isinstance(target, ast.Tuple):
                target = target.elts[-1]
            if isinstance(target, ast.Name):
                yield target.id


def _ordering(value: ast.AST) -> ast.Call | None:
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ORDERS:
            axes = [k.value for k in node.keywords if k.arg in ("dim", "axis")]
            later = [a for a in (*axes, *node.args) if isinstance(a, ast.UnaryOp)]
            others = [a for a in axes if isinstance(a, ast.Constant) and a.value != 0]
            return None if later or others else node
    return None


def _takes(node: ast.AST, orders: set[str]) -> bool:
    """``rows[order]``, ``rows.index_select(0, order)``: rows in another order."""
    if isinstance(node, ast.Subscript):
        plain = isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Name)
        return plain and isinstance(node.slice, ast.Name) and node.slice.id in orders
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("index_select"):
        return any(isinstance(a, ast.Name) and a.id in orders for a in node.args)
    return False


def _puts_back(node: ast.AST, orders: set[str]) -> bool:
    """``order.argsort()``, ``rows[order] = sorted_rows``: the way back."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return any(isinstance(n, ast.Name) and n.id in orders for n in ast.walk(node.slice))
    call = _ordering(node) if isinstance(node, ast.Call) else None
    of = ast.walk(call) if call is not None else ()
    return any(isinstance(n, ast.Name) and n.id in orders for n in of)
