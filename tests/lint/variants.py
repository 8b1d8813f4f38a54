"""The same program written otherwise: under other names, and with its parts in another file."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import replace

from tests.lint.cases import Case
from tests.lint.scopes import Definition, Import, bound, free, said

_KEPT = frozenset({"main", "self", "cls", "_", "__name__", *dir(builtins)})


def renamed(case: Case) -> Case | None:
    """Every name that the program binds itself is another one; None if it has several files."""
    if len(case.files) != 1:
        return None
    path, text = case.files[0]
    tree = ast.parse(text)
    names = sorted(n for n in set(_bound(tree)) - _keywords(tree) - _KEPT if n[:2] != "__")
    fresh = {name: f"n{number}" for number, name in enumerate(names)}
    return replace(case, files=((path, ast.unparse(_Renamer(fresh).visit(tree))),))


def moved(case: Case) -> Case | None:
    """Functions and classes stand in a file of their own; those that use names of the module stay.
    None if none can be moved."""
    if len(case.files) != 1:
        return None
    path, text = case.files[0]
    tree = ast.parse(text)
    parts = [node for node in tree.body if isinstance(node, Definition) and node.name != "main"]
    imports = [node for node in tree.body if isinstance(node, Import)]
    while staying := [one for one in parts if _uses(one) & _stay(tree, [*parts, *imports])]:
        parts = [one for one in parts if one not in staying]
    if not parts:
        return None
    names = ", ".join(node.name for node in parts)
    first = tree.body.index(parts[0])
    tree.body[first] = ast.parse(f"from parts import {names}").body[0]
    main = ast.Module([node for node in tree.body if node not in parts], [])
    other = ast.Module([*imports, *parts], [])
    return replace(case, files=((path, ast.unparse(main)), ("parts.py", ast.unparse(other))))


def _uses(part: ast.AST) -> set[str]:
    """Names that a part says and does not bind; one more, if it sets a variable of the module."""
    shared = any(isinstance(node, ast.Global) for node in ast.walk(part))
    local = free(part) if isinstance(part, ast.FunctionDef) else set(said(part))
    return local | ({"global"} if shared else set())


def _stay(tree: ast.Module, going: list[ast.stmt]) -> set[str]:
    """Names of the module that what goes elsewhere may not use."""
    rest = [node for node in tree.body if node not in going]
    inner = [n for node in rest if not isinstance(node, Definition) for n in ast.walk(node)]
    imported = {(n.asname or n.name).split(".")[0] for n in inner if isinstance(n, ast.alias)}
    defined = {node.name for node in rest if isinstance(node, Definition)}
    shared = {name for n in ast.walk(tree) if isinstance(n, ast.Global) for name in n.names}
    return set(bound(rest)) | defined | imported | shared | {"global"}


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that are bound by an assignment, a loop, a parameter, a definition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from [] if _is_method(tree, node) else [node.name]
        elif isinstance(node, ast.ClassDef):
            yield node.name


def _is_method(tree: ast.AST, function: ast.AST) -> bool:
    return any(function in n.body for n in ast.walk(tree) if isinstance(n, ast.ClassDef))


def _keywords(tree: ast.AST) -> set[str]:
    """Names that are also said where a call or a class names an argument or a field."""
    found = {n.arg for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg}
    fields = (s for n in ast.walk(tree) if isinstance(n, ast.ClassDef) for s in n.body)
    return found | {name for field in fields for name in _fields(field)}


def _fields(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        yield from _bound(statement)


class _Renamer(ast.NodeTransformer):
    def __init__(self, fresh: dict[str, str]) -> None:
        self.fresh = fresh

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.fresh.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.fresh.get(node.arg, node.arg)
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> ast.AST:
        node.names = [self.fresh.get(name, name) for name in node.names]
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [self.fresh.get(name, name) for name in node.names]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.fresh.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        body, node.body = node.body, []
        node.name = self.fresh.get(node.name, node.name)
        self.generic_visit(node)
        node.body = [self._member(item) for item in body]
        return node

    def _member(self, item: ast.stmt) -> ast.stmt:
        """A method keeps its name: others say it after a dot."""
        name = item.name if isinstance(item, ast.FunctionDef) else ""
        made = self.visit(item)
        if isinstance(made, ast.FunctionDef):
            made.name = name
        assert isinstance(made, ast.stmt)
        return made
