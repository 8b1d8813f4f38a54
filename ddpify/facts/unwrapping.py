"""`model.module if isinstance(model, nn.DataParallel) else model`: scripts' own ways to unwrap."""

from __future__ import annotations

import ast


def unwrapped_model(node: ast.AST | None) -> ast.expr | None:
    """The `model` of such an expression (the one before `.module`), None for other code.

    Whatever the test is: `model.module` is there only where the model is wrapped.
    """
    if not isinstance(node, ast.IfExp):
        return None
    for one, other in ((node.body, node.orelse), (node.orelse, node.body)):
        if isinstance(one, ast.Attribute) and one.attr == "module":
            return one.value if ast.unparse(one.value) == ast.unparse(other) else None
    return None
