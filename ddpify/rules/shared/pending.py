"""What happens to a tensor between an asynchronous call and the wait for it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import Module
from ddpify.rules.shared.syntax import dotted, parents, scope
from ddpify.site import Site

# Methods that read a tensor's numbers, and functions that do.
_READING: Final = frozenset(
    "item tolist cpu numpy clone mean sum max min norm abs add sub mul div argmax any all".split()
)
_FUNCTIONS: Final = frozenset("print float int bool str sum max min abs sorted list".split())
_MODULES: Final = ("torch.", "torch.nn.functional.", "numpy.")
_FORM: Final = frozenset("is_tensor numel is_floating_point typename".split())
# Calls that wait, be it for everything.
_WAITS: Final = frozenset(
    "wait Wait Waitall Waitany Test synchronize wait_stream is_completed result barrier".split()
)
_FILLS: Final = frozenset("irecv Irecv recv Recv".split())
_LEAVES = (ast.Return, ast.Yield, ast.Break, ast.Continue, ast.Raise)
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)


def touched(call: RankCall, tensor: ast.expr | None, reading: bool) -> Site | None:
    """Where a tensor is changed before the wait, or read if ``reading``; in plain sequence after
    the call, in the block in which that stands."""
    if not isinstance(tensor, (ast.Name, ast.Attribute)):
        return None
    spelled = ast.unparse(tensor)
    holder, *following = _following(scope(call), call.node)
    handle = _handle(holder, call.node)
    if handle is None or _waits(holder, ""):
        return None
    shared = handle != "" and _is_shared(scope(call), handle)
    for statement in following:
        if _waits(statement, handle) or (shared and _calls_own(call, statement)):
            return None
        if isinstance(statement, _BLOCKS) and _binds(statement, spelled):
            return None
        for node in _uses(call.module, statement, spelled, reading):
            return call.module.site(node)
        if _binds(statement, spelled):
            return None
    return None


def _handle(statement: ast.stmt, call: ast.Call) -> str | None:
    """The name that keeps what has to be waited for: ``work = …``, ``works.append(…)``; empty if
    nothing does, None if that is not known."""
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        plain = len(statement.targets) == 1 and isinstance(target, (ast.Name, ast.Attribute))
        return ast.unparse(target) if plain else None
    if not isinstance(statement, ast.Expr) or value is call:
        return "" if value is call else None
    func = value.func if isinstance(value, ast.Call) else None
    appends = isinstance(func, ast.Attribute) and func.attr == "append"
    return ast.unparse(func.value) if appends and isinstance(func, ast.Attribute) else None


def _is_shared(root: ast.AST, handle: str) -> bool:
    """Whether others may get at what keeps it: an attribute, a global, what a closure has."""
    bound = any(
        isinstance(node, ast.Name) and node.id == handle and isinstance(node.ctx, ast.Store)
        for node in _now(root)
    )
    return not bound or any(
        isinstance(one, ast.Name) and one.id == handle
        for node in ast.walk(root)
        if isinstance(node, _LATER) and node is not root
        for one in ast.walk(node)
    )


def _calls_own(call: RankCall, statement: ast.stmt) -> bool:
    """Whether it calls what is no function of a library or of Python."""
    return any(
        isinstance(node, ast.Call)
        and dotted(call.module, node.func) is None
        and not (isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id))
        for node in ast.walk(statement)
    )


def _now(root: ast.AST) -> Iterator[ast.AST]:
    """What is done here, not in functions that are called later."""
    for node in ast.iter_child_nodes(root):
        if not isinstance(node, _LATER):
            yield node
            yield from _now(node)


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
    above = parents(statement)
    for node in (statement, *above):
        if isinstance(node, ast.Attribute) and node.attr in _WAITS:
            return True
        if isinstance(node, _LEAVES):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == handle:
            holder = above.get(node)
            if not (isinstance(holder, ast.Attribute) and holder.attr == "append"):
                return True
    return False


def _uses(module: Module, statement: ast.stmt, spelled: str, reading: bool) -> Iterator[ast.AST]:
    """Where a statement changes the tensor of this name, or reads its numbers."""
    above = parents(statement)
    for node in () if isinstance(statement, _LATER) else _now(statement):
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == spelled:
            holder = above.get(node)
            if (reading and _reads(module, node, holder, above)) or _changes(node, holder, above):
                yield node


def _reads(
    module: Module, node: ast.expr, holder: ast.AST | None, above: dict[ast.AST, ast.AST]
) -> bool:
    """``x * 2``, ``x > 0``, ``x.mean()``, ``float(x)``, ``torch.cat([x, y])``, ``f"{x}"``."""
    if isinstance(holder, ast.Compare):
        return not any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in holder.ops)
    if isinstance(holder, ast.Attribute):
        return holder.attr in _READING and isinstance(above.get(holder), ast.Call)
    if isinstance(holder, ast.Subscript) and holder.value is node:
        return _reads(module, holder, above.get(holder), above)
    if isinstance(holder, (ast.List, ast.Tuple)):
        node, holder = holder, above.get(holder)
    if not isinstance(holder, ast.Call) or node not in holder.args:
        return isinstance(holder, (ast.BinOp, ast.UnaryOp, ast.AugAssign, ast.FormattedValue))
    if isinstance(holder.func, ast.Name) and holder.func.id in _FUNCTIONS:
        return True
    name = dotted(module, holder.func) or ""
    of, last = name.rpartition(".")[0] + ".", name.rpartition(".")[2]
    return of in _MODULES and not last.endswith("_like") and last not in _FORM


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


def _binds(statement: ast.stmt, spelled: str) -> bool:
    """Whether the name stands for something else from now on."""
    return any(
        isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, (ast.Store, ast.Del))
        and ast.unparse(node) == spelled
        and not isinstance(holder, ast.AugAssign)
        for node, holder in parents(statement).items()
    )
