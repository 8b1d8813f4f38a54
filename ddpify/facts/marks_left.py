"""What a function leaves behind in the program: other ranks would miss it if one alone ran it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts.tree import Tree

# Methods that change what they are called on, and functions that change a state of the process.
CHANGES = frozenset(
    """append extend add insert update setdefault appendleft pop popitem clear remove discard sort
    reverse seed manual_seed manual_seed_all set_defaults set_state setattr train eval
    requires_grad_ load_state_dict zero_grad register_buffer set_epoch""".split()
)


def leaves_marks(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, trees: Iterable[Tree]
) -> bool:
    """Whether a function changes names or objects not its own: globals, attributes, arguments.

    A global that nothing else reads, the time of the last call say, is its own.
    """
    own = set(_made_here(function))
    for node in ast.walk(function):
        if isinstance(node, ast.Nonlocal):
            return True
        if isinstance(node, ast.Global) and _read_elsewhere(function, node.names, trees):
            return True
        if changes(node, own):
            return True
    return False


def changes(node: ast.AST, own: set[str]) -> bool:
    """Whether a node changes an object that none of the names in ``own`` stands for."""
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        stored = isinstance(node.ctx, (ast.Store, ast.Del))
        return stored and _root(node) not in own
    return isinstance(node, ast.Call) and _is_change(node) and _root(node.func) not in own


def _read_elsewhere(function: ast.AST, names: list[str], trees: Iterable[Tree]) -> bool:
    wanted = set(names)
    for tree in trees:
        own = {function, *(s for s in tree.module.body if _begins(s, wanted))}
        inside = {node for one in own for node in ast.walk(one)}
        if any(_reads(node) in wanted for node in tree.nodes() if node not in inside):
            return True
    return False


def _begins(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement only gives these globals their first values."""
    if not isinstance(statement, ast.Assign):
        return False
    return all(isinstance(t, ast.Name) and t.id in names for t in statement.targets)


def _reads(node: ast.AST) -> str:
    """The name that is read, imported or looked up here."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Load) else ""
    if isinstance(node, ast.alias):
        return node.name
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_change(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return name in CHANGES


def _made_here(function: ast.AST) -> Iterator[str]:
    """Names that the function binds itself, parameters not among them."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
