"""What names stand for: what they import, what was assigned to them, what callers give."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import Module, note_import


def dotted(module: Module, node: ast.expr) -> str | None:
    """The qualified name that a chain of attributes spells through the imports of its file."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in module.imports:
        return None
    start, attribute, level = module.imports[node.id]
    return None if level else ".".join(part for part in (start, attribute, *names) if part)


def spelled(module: Module, node: ast.expr) -> str | None:
    """``dotted``, if no other import, assignment or parameter of the file has the first name."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name):
        return None
    bound = set(_bindings(module, root.id))
    if len(bound) != 1 or None in bound:
        return None
    start, attribute, level = next(one for one in bound if one is not None)
    rest = ast.unparse(node).partition(".")[2]
    return None if level else ".".join(part for part in (start, attribute, rest) if part)


def _bindings(module: Module, name: str) -> Iterator[tuple[str, str, int] | None]:
    """What binds a name anywhere in a file: imports, and None for everything else."""
    for node in module.nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names: dict[str, tuple[str, str, int]] = {}
            note_import(names, [], node)
            if name in names:
                yield names[name]
        elif (
            (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
            or (isinstance(node, ast.arg) and node.arg == name)
            or (isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name)
        ):
            yield None


def scope(call: RankCall) -> ast.AST:
    """The function, or the module, in which a call stands."""
    return call.function.node if call.function is not None else call.module.tree


def scope_nodes(call: RankCall) -> tuple[ast.AST, ...]:
    """All nodes of the function, or of the module, in which a call stands."""
    return call.function.nodes if call.function is not None else call.module.nodes


@lru_cache(maxsize=64)  # of one function many calls are asked
def parents(root: ast.AST) -> dict[ast.AST, ast.AST]:
    """Each node below ``root``, and what holds it."""
    return {child: node for node in ast.walk(root) for child in ast.iter_child_nodes(node)}


def definitions(call: RankCall, target: ast.expr) -> Iterator[ast.expr]:
    """The expressions assigned to a name in the call's scope, or to ``self.name`` in the file."""
    if isinstance(target, ast.Attribute):
        written = ast.unparse(target)
        yield from (value for name, value in call.module.assigned if name == written)
        return
    wanted = _stored(target)
    for node in scope_nodes(call):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_stored(one) == wanted for one in targets):
                yield node.value


def resolved(call: RankCall, node: ast.expr) -> list[tuple[RankCall, ast.expr]]:
    """What a name may stand for: what is assigned to it here, or what the caller gives for it.

    An attribute stands for what the file assigns to it, anything else for itself.
    """
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return [(call, node)]
    found = [(call, value) for value in definitions(call, node)]
    if isinstance(node, ast.Attribute):
        return found or [(call, node)]
    given = _given(call, node.id)
    return found if given is None else [*found, given]


def _given(call: RankCall, name: str) -> tuple[RankCall, ast.expr] | None:
    """The argument that the caller gives for a parameter of the function in which ``call`` is."""
    caller = call.stack[-1] if call.stack else None
    if caller is None or call.function is None or caller.target is not call.function:
        return None
    names = call.function.parameters
    if caller.receiver is not None and call.function.owner is not None:
        names = names[1:]
    if name not in names:
        return None
    given = caller.node_of(names.index(name), name)
    return (caller, given) if given is not None else None


def is_filled(call: RankCall, target: ast.expr) -> bool:
    """Whether elements of it are assigned one by one before the call: what is put in after it has
    made use of the list is too late."""
    wanted, around = ast.dump(target), scope_nodes(call)
    later = {n for n in around if getattr(n, "lineno", 0) > call.node.lineno}
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and ast.dump(node.value) == wanted
        and node not in later
        for node in (call.module.nodes if isinstance(target, ast.Attribute) else around)
    )


def _stored(node: ast.expr) -> str:
    return ast.dump(node).replace("Load()", "Store()")
