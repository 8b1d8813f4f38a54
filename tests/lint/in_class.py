"""The same program as a class: its functions are methods, what ``main`` holds are attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from tests.lint.cases import Case

_SELF = "self"
_NAME = "WholeProgram"
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_Scope = (*_Function, ast.Lambda, ast.ClassDef)
_Comprehension = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def in_class(case: Case) -> Case | None:
    """Every function of the program is a method of one class; None if that cannot be written."""
    if len(case.files) != 1:
        return None
    path, text = case.files[0]
    tree = ast.parse(text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names = {function.name for function in functions}
    if not names or names & _bound_elsewhere(tree) or _is_said_early(tree, names):
        return None
    methods = [_method(function, names) for function in functions]
    job = ast.ClassDef(name=_NAME, bases=[], keywords=[], body=methods, decorator_list=[])
    rest = [_Calls(names, f"{_NAME}()").visit(node) for node in tree.body if node not in functions]
    last = max((n for n, node in enumerate(rest) if isinstance(node, _Above)), default=-1) + 1
    made = ast.fix_missing_locations(ast.Module([*rest[:last], job, *rest[last:]], []))
    return replace(case, files=((path, ast.unparse(made)),))


_Above = (ast.Import, ast.ImportFrom, ast.ClassDef)


def _method(function: ast.FunctionDef, names: set[str]) -> ast.stmt:
    kept = _attributes(function) if function.name == "main" else set()
    method = _Calls(names | kept, _SELF).visit(function)
    assert isinstance(method, ast.FunctionDef)
    method.args.args.insert(0, ast.arg(_SELF))
    return method


def _attributes(function: ast.FunctionDef) -> set[str]:
    """Locals that are only ever assigned: a loop's or a handler's variable stays a local."""
    assigned: set[str] = set()
    other = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    for node in ast.walk(function):
        targets = _targets(node)
        names = {n.id for t in targets for n in ast.walk(t) if _is_stored(n)}
        assigned |= names if isinstance(node, (ast.Assign, ast.AugAssign)) else set()
        other |= set() if isinstance(node, (ast.Assign, ast.AugAssign)) else names
        other |= _otherwise(node, function)
    return assigned - other


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    target = getattr(node, "target", None)
    return [target] if isinstance(target, ast.expr) else []


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _otherwise(node: ast.AST, function: ast.FunctionDef) -> set[str]:
    """Names bound by something that takes no attribute, or by a scope inside."""
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return set(node.names)
    if isinstance(node, ast.alias):
        return {node.asname or node.name}
    if isinstance(node, ast.ExceptHandler):
        return {node.name or ""}
    if isinstance(node, ast.withitem) and node.optional_vars is not None:
        return {n.id for n in ast.walk(node.optional_vars) if isinstance(n, ast.Name)}
    if node is not function and isinstance(node, _Scope):
        inner = {n.id for n in ast.walk(node) if _is_stored(n)}
        arguments = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        return inner | arguments | {getattr(node, "name", "")}
    return set()


def _bound_elsewhere(tree: ast.Module) -> set[str]:
    """Names that a function shares with a local, an argument or another definition in one."""
    inner = (n for top in tree.body for n in _inside(top) if not isinstance(n, ast.keyword))
    return {
        name
        for node in inner
        for name in (getattr(node, "arg", None), getattr(node, "name", None))
        if isinstance(name, str)
    } | {n.id for n in ast.walk(tree) if _is_stored(n)}


def _inside(top: ast.stmt) -> Iterator[ast.AST]:
    """What stands in a definition; a method is said after a dot, so that its name is no other."""
    methods = top.body if isinstance(top, ast.ClassDef) else []
    return (n for n in ast.walk(top) if n is not top and n not in methods)


def _is_said_early(tree: ast.Module, names: set[str]) -> bool:
    """Whether a function is a decorator, a default or a base: needed before there is an object."""
    return any(
        isinstance(n, ast.Name) and n.id in names for part in _early(tree) for n in ast.walk(part)
    )


def _early(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, (*_Function, ast.ClassDef)):
            yield from node.decorator_list
        if isinstance(node, ast.ClassDef):
            yield from node.bases
            yield from (s for s in node.body if not isinstance(s, _Function))
        if isinstance(node, ast.arguments):
            yield from (*node.defaults, *(d for d in node.kw_defaults if d is not None))


class _Calls(ast.NodeTransformer):
    """``name`` becomes ``owner.name``."""

    def __init__(self, names: set[str], owner: str) -> None:
        self.names = names
        self.owner = owner

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.names:
            return node
        owner = ast.parse(self.owner, mode="eval").body
        return ast.Attribute(value=owner, attr=node.id, ctx=node.ctx)
