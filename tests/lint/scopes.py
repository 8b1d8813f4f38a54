"""Which names statements bind and say: what the variants of a program ask of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Import = (ast.Import, ast.ImportFrom)
_Comprehension = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Scope = (*Definition, *_Comprehension, ast.Lambda)


def said(node: ast.AST) -> Iterator[str]:
    """Every name in a piece of a program."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, Definition):
            yield one.name
        elif isinstance(one, (ast.Global, ast.Nonlocal)):
            yield from one.names
        elif isinstance(one, ast.alias):
            yield (one.asname or one.name).split(".")[0]


def bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names that statements bind in their own scope."""
    for node in body:
        yield from _bound_by(node)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.id
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node) if not isinstance(node, _Scope) else ():
        yield from _bound_by(child)


def own(function: ast.FunctionDef) -> set[str]:
    """The parameters of a function, and of those in it."""
    return {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def free(function: ast.FunctionDef) -> set[str]:
    """Names that a function reads and does not bind."""
    read = {name for node in function.body for name in said(node)}
    defaults = (*function.args.defaults, *(d for d in function.args.kw_defaults if d is not None))
    outside = {name for node in defaults for name in said(node)}
    return read - own(function) - set(bound(function.body)) | outside | _shared(function)


def _shared(function: ast.FunctionDef) -> set[str]:
    return {n for node in ast.walk(function) if isinstance(node, ast.Global) for n in node.names}
