"""What happens to a tensor between an asynchronous call and the wait for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.rules.shared.syntax import scope
from ddpify.site import Site

# What tells of a tensor no more than its form.
_FORM: Final = frozenset("shape size dtype device numel dim ndim is_cuda layout stride".split())
# Calls that wait, be it for everything.
_WAITS: Final = frozenset(
    "wait Wait Waitall Waitany Test synchronize wait_stream is_completed result barrier".split()
)
_FILLS: Final = frozenset("irecv Irecv recv Recv all_reduce broadcast".split())


def touched(call: RankCall, tensor: ast.expr | None, reading: bool) -> Site | None:
    """Where a tensor is changed before the wait, or read if ``reading``; in plain sequence after
    the call, in the block in which that stands."""
    if not isinstance(tensor, (ast.Name, ast.Attribute)):
        return None
    spelled = ast.unparse(tensor)
    holder, *following = _following(scope(call), call.node)
    handle = _handle(holder)
    if _waits(holder, ""):
        return None
    for statement in following:
        if _waits(statement, handle):
            return None
        for node in _uses(statement, spelled, reading):
            return call.module.site(node)
        if _binds(statement, spelled):
            return None
    return None


def _handle(statement: ast.stmt) -> str:
    """The name that keeps what has to be waited for: ``work = …``, ``works.append(…)``."""
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0])
    func = getattr(getattr(statement, "value", None), "func", None)
    return ast.unparse(func.value) if isinstance(func, ast.Attribute) else ""


def _following(root: ast.AST, node: ast.AST) -> list[ast.stmt]:
    """The statement that holds ``node`` and those after it, in the innermost block around it."""
    found: list[ast.stmt] = []
    for block in _blocks(root):
        for number, statement in enumerate(block):
            if any(one is node for one in ast.walk(statement)):
                found = block[number:]
    return found


def _blocks(root: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a function, outer ones first."""
    for node in ast.walk(root):
        for name in ("body", "orelse", "finalbody"):
            held = getattr(node, name, None)
            if isinstance(held, list):
                yield held


def _waits(statement: ast.stmt, handle: str) -> bool:
    """Whether it waits, leaves, or hands the handle to something that may wait."""
    above = {child: node for node in ast.walk(statement) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and node.attr in _WAITS:
            return True
        if isinstance(node, (ast.Return, ast.Yield, ast.Break, ast.Continue, ast.Raise)):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == handle:
            holder = above.get(node)
            if not (isinstance(holder, ast.Attribute) and holder.attr == "append"):
                return True
    return False


def _uses(statement: ast.stmt, spelled: str, reading: bool) -> Iterator[ast.AST]:
    """Where a statement changes the tensor of this name, or reads it."""
    above = {child: node for node in ast.walk(statement) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(statement):
        if not isinstance(node, (ast.Name, ast.Attribute)) or ast.unparse(node) != spelled:
            continue
        holder = above.get(node)
        read = reading and isinstance(node.ctx, ast.Load) and not _is_form(holder)
        if read or _changes(node, holder, above):
            yield node


def _changes(node: ast.expr, holder: ast.AST | None, above: dict[ast.AST, ast.AST]) -> bool:
    """``x += 1``, ``x[0] = 1``, ``x.zero_()``, ``dist.irecv(x)``."""
    if isinstance(holder, ast.AugAssign) and holder.target is node:
        return True
    if isinstance(holder, ast.Subscript) and holder.value is node:
        outer = above.get(holder)
        stored = isinstance(outer, ast.AugAssign) and outer.target is holder
        return stored or isinstance(holder.ctx, ast.Store)
    if isinstance(holder, ast.Attribute) and isinstance(above.get(holder), ast.Call):
        name = holder.attr
        return name.endswith("_") and not name.startswith("_") and name != "requires_grad_"
    func = holder.func if isinstance(holder, ast.Call) else None
    filled = isinstance(func, ast.Attribute) and func.attr in _FILLS
    return filled and isinstance(holder, ast.Call) and holder.args[:1] == [node]


def _is_form(holder: ast.AST | None) -> bool:
    if isinstance(holder, ast.Attribute):
        return holder.attr in _FORM
    func = holder.func if isinstance(holder, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return name in ("len", "id", "isinstance") or name.endswith("_like")


def _binds(statement: ast.stmt, spelled: str) -> bool:
    """Whether the name stands for something else from now on."""
    return any(
        isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, (ast.Store, ast.Del))
        and ast.unparse(node) == spelled
        for node in ast.walk(statement)
    )
