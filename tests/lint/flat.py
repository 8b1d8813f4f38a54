"""The same flat script as a program of functions: its statements in ``main``, its functions given
what they use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from tests.lint.cases import Case
from tests.lint.in_class import in_class
from tests.lint.scopes import Definition, Import, bound, free, own, said
from tests.lint.variants import moved


def in_main(case: Case) -> Case | None:
    """What follows the last definition is the body of ``main``; None if there is nothing that
    trains there, or a ``main`` already."""
    text = case.files[0][1]
    tree = ast.parse(text)
    last = max((n for n, node in enumerate(tree.body) if isinstance(node, Definition)), default=-1)
    head, tail = tree.body[: last + 1], list(_unguarded(tree.body[last + 1 :]))
    head += [node for node in tail if isinstance(node, Import)]
    body = [node for node in tail if not isinstance(node, Import)]
    elsewhere = {name for node in head for name in _read(node)}
    loops = any(isinstance(node, (ast.For, ast.While)) for node in body)
    if len(case.files) != 1 or not loops or "main" in elsewhere:
        return None
    shared = sorted(elsewhere & set(bound(body)))
    given = [ast.Global(shared)] if shared else []
    main = ast.parse("def main(): pass\nif __name__ == '__main__':\n    main()").body
    assert isinstance(main[0], ast.FunctionDef)
    main[0].body = [*given, *body]
    return _written(case, [*head, *main])


def in_files(case: Case) -> Case | None:
    """What can be stands in a file of its own, given what it uses."""
    return moved(passed(case))


def as_class(case: Case) -> Case | None:
    """One class, whose ``main`` is what stood in the module."""
    given = passed(case)
    return in_class(in_main(given) or given)


def passed(case: Case) -> Case:
    """Functions of the module are given the variables of the module that they use, where each is
    only called and no function sets the variable."""
    text = case.files[0][1]
    tree = ast.parse(text)
    variables = set(bound(tree.body)) - _set_by_functions(tree)
    called = {
        f.name: f for f in tree.body if isinstance(f, ast.FunctionDef) and _is_called(f, tree)
    }
    uses = {name: free(function) & variables for name, function in called.items()}
    for _ in called:
        for name, function in called.items():
            uses[name] |= {v for other in free(function) & set(uses) for v in uses[other]}
    while hidden := {n for n in uses if _is_hidden(n, uses[n], tree)}:
        uses = {name: given for name, given in uses.items() if name not in hidden}
    tree = _Given({name: sorted(given) for name, given in uses.items()}).visit(tree)
    return _written(case, tree.body)


def _written(case: Case, body: list[ast.stmt]) -> Case:
    made = ast.fix_missing_locations(ast.Module(body, []))
    return replace(case, files=((case.files[0][0], ast.unparse(made)),))


def _unguarded(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, those under ``if __name__ == "__main__"`` among them."""
    for node in body:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) and not node.orelse:
            yield from node.body
        else:
            yield node


def _read(node: ast.AST) -> set[str]:
    """Names of the module that a statement says, or a function in it."""
    if isinstance(node, ast.ClassDef):
        outside = (*node.bases, *node.decorator_list)
        return {name for one in (*node.body, *outside) for name in _read(one)} | {node.name}
    if isinstance(node, ast.FunctionDef):
        return free(node) | {node.name} | {n for d in node.decorator_list for n in said(d)}
    return set(said(node))


def _set_by_functions(tree: ast.Module) -> set[str]:
    return {n for node in ast.walk(tree) if isinstance(node, ast.Global) for n in node.names}


def _is_called(function: ast.FunctionDef, tree: ast.Module) -> bool:
    """Whether every mention of a function is a call of it, from a function or the module."""
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    mentions = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == function.name]
    inner = {id(n) for c in tree.body if isinstance(c, ast.ClassDef) for n in ast.walk(c)}
    return all(id(node) in calls - inner for node in mentions) and not function.decorator_list


def _is_hidden(name: str, given: set[str], tree: ast.Module) -> bool:
    """Whether a function, or one that calls it, has a variable of its own of such a name."""
    return any(
        given & (own(f) | set(bound(f.body)))
        for f in ast.walk(tree)
        if isinstance(f, ast.FunctionDef) and (f.name == name or name in said(f))
    )


class _Given(ast.NodeTransformer):
    """Functions and their calls with more arguments, before the others."""

    def __init__(self, uses: dict[str, list[str]]) -> None:
        self.uses = uses

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.args.args[:0] = [ast.arg(name) for name in self.uses.get(node.name, ())]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        node.args[:0] = [ast.Name(one, ast.Load()) for one in self.uses.get(name, ())]
        return self.generic_visit(node)
