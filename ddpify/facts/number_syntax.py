"""Expressions that a number is shown by: which are one number, and what is inside of others."""

from __future__ import annotations

import ast


def is_number_call(node: ast.expr) -> bool:
    """``loss.item()``, ``len(data)``: one number, taken whole."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in ("item", "size") and not isinstance(node.func.value, ast.Constant)
    return isinstance(node.func, ast.Name) and node.func.id == "len"


def is_item(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "item"


def inside(node: ast.expr) -> list[ast.expr]:
    return [c for c in _children(node) if isinstance(c, ast.expr)]


def _children(node: ast.expr) -> list[ast.AST]:
    if isinstance(node, ast.Call):
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*receiver, *node.args, *[k.value for k in node.keywords]]
    if isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
        return []
    return list(ast.iter_child_nodes(node))
