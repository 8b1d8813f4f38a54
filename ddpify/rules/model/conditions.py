"""Whether what decides about a layer is the same on every rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.model import Facts


def is_a_setting(facts: Facts, layer: str) -> bool:
    """Whether all that is asked where a layer is used is asked of the module itself. ::

    out = self.down(x) if self.half else x

    Any other condition of the same method may be a sample's, and skip other layers.
    """
    tests = [t for tree in facts.trees.values() for t in _tests(tree.module, layer)]
    return bool(tests) and all(_asks_itself(test) for test in tests)


def _tests(module: ast.AST, layer: str) -> Iterator[ast.expr]:
    """The conditions of methods, other than constructors, that use ``self.layer``."""
    functions = (n for n in ast.walk(module) if isinstance(n, ast.FunctionDef))
    for function in functions:
        nodes = list(ast.walk(function))
        used = any(
            isinstance(n, ast.Attribute) and ast.unparse(n) == f"self.{layer}" for n in nodes
        )
        for node in nodes if used and function.name != "__init__" else ():
            if isinstance(node, (ast.If, ast.IfExp, ast.While)):
                yield node.test
            elif isinstance(node, ast.BoolOp):
                yield from node.values


def _asks_itself(test: ast.expr) -> bool:
    called = any(isinstance(n, ast.Call) for n in ast.walk(test))
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    return names == {"self"} and not called
