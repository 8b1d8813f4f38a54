"""Whether what decides about a layer is the same on every rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.model import Facts


def is_a_setting(facts: Facts, layer: str) -> bool:
    """Whether all conditions under which a layer is used ask the module, not what it is given. ::

    out = self.down(x) if self.half else x
    """
    tests = [test for tree in facts.trees.values() for test in _tests(tree.module, layer, ())]
    return bool(tests) and all(_asks_itself(test) for test in tests)


def _tests(node: ast.AST, layer: str, above: tuple[ast.expr, ...]) -> Iterator[ast.expr]:
    """What is asked before uses of ``self.layer`` in functions other than constructors."""
    if isinstance(node, ast.FunctionDef):
        above = ()
        if node.name == "__init__":
            return
    if isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{layer}":
        yield from above
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        above = (*above, node.test)
    elif isinstance(node, ast.BoolOp):
        above = (*above, *node.values)
    for inner in ast.iter_child_nodes(node):
        yield from _tests(inner, layer, above)


def _asks_itself(test: ast.expr) -> bool:
    called = any(isinstance(n, ast.Call) for n in ast.walk(test))
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    return names == {"self"} and not called
