"""Every program that a correct script becomes when one safeguard is taken out.

A safeguard is recognised by its form in the tree; the mutant is the unparsed tree without it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Project = Mapping[str, str]

# Statements that are deleted: the method's or function's name, and the class of the safeguard.
_STATEMENTS = {
    "set_epoch": "set-epoch",
    "barrier": "barrier",
    "wait": "barrier",
    "all_reduce": "reduction",
    "broadcast": "broadcast",
    "set_device": "set-device",
    "unscale_": "unscale",
}
# Keyword arguments that are dropped: the callable, the keyword, and the class.
_KEYWORDS = {
    ("load", "map_location"): "map-location",
    ("DataLoader", "sampler"): "sampler",
    ("log", "sync_dist"): "reduction",
    ("StateDictOptions", "full_state_dict"): "full-state",
}
_RANKS = frozenset({"rank", "local_rank", "get_rank", "is_main", "main_process", "is_global_zero"})


@dataclass(frozen=True)
class Mutant:
    """One safeguard less: its class, where it stood, and the files without it."""

    kind: str
    where: str
    files: Project


def mutants(project: Project) -> Iterator[Mutant]:
    """Every mutant of a project, in the order of the lines."""
    for name, text in project.items():
        tree = ast.parse(text)
        for number, node in enumerate(ast.walk(tree)):
            for kind, change in _changes(node):
                yield _mutant(project, name, tree, number, kind, change)


def _mutant(
    project: Project, name: str, tree: ast.Module, number: int, kind: str, change: _Change
) -> Mutant:
    other = copy.deepcopy(tree)
    node = list(ast.walk(other))[number]
    line = getattr(node, "lineno", 0)
    _Apply(node, change).visit(other)
    text = ast.unparse(ast.fix_missing_locations(other)) + "\n"
    return Mutant(kind, f"{name}:{line}", {**project, name: text})


_Change = Callable[[Any], Any]


class _Apply(ast.NodeTransformer):
    """Replace one node by what ``change`` makes of it."""

    def __init__(self, node: ast.AST, change: _Change) -> None:
        self.node, self.change = node, change

    def visit(self, node: ast.AST) -> Any:
        return self.change(node) if node is self.node else self.generic_visit(node)


def _changes(node: ast.AST) -> Iterator[tuple[str, _Change]]:
    if isinstance(node, ast.Expr) and _called(node.value) in _STATEMENTS:
        yield _STATEMENTS[_called(node.value)], lambda _: ast.Pass()
    elif isinstance(node, ast.If) and not node.orelse and _is_gate(node.test):
        yield "gate", lambda gate: gate.body
    elif isinstance(node, ast.With):
        yield from _contexts(node)
    elif isinstance(node, ast.Call):
        yield from _arguments(node)
    elif isinstance(node, ast.Attribute) and node.attr == "module":
        yield "module", lambda attribute: attribute.value
    elif isinstance(node, ast.FunctionDef) and node.decorator_list:
        yield from _decorators(node)
    elif isinstance(node, ast.IfExp) and _is_gate(node.test):
        yield "gate", lambda choice: choice.body


def _contexts(node: ast.With) -> Iterator[tuple[str, _Change]]:
    names = {_called(part) for item in node.items for part in ast.walk(item.context_expr)}
    if "no_sync" in names:
        yield "no-sync", lambda block: block.body
    if "first_on_node" in names:
        yield "barrier", lambda block: block.body


def _arguments(node: ast.Call) -> Iterator[tuple[str, _Change]]:
    for keyword in node.keywords:
        if kind := _KEYWORDS.get((_called(node), keyword.arg or "")):
            yield kind, lambda call, name=keyword.arg: _without(call, name)
    if _called(node) == "full_tensor":
        yield "reduction", lambda call: call.func.value


def _decorators(node: ast.FunctionDef) -> Iterator[tuple[str, _Change]]:
    if any(getattr(one, "id", "") == "rank_zero_only" for one in node.decorator_list):
        yield "gate", _undecorated


def _undecorated(function: ast.FunctionDef) -> ast.FunctionDef:
    function.decorator_list = []
    return function


def _without(call: ast.Call, name: str) -> ast.Call:
    call.keywords = [keyword for keyword in call.keywords if keyword.arg != name]
    return call


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_gate(test: ast.expr) -> bool:
    words = {getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(test)}
    return bool(words & _RANKS)
