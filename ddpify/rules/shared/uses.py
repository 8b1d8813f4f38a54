"""What is done with the value of a call, and with the name that it gets."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.rules.shared.syntax import definitions, parents, scope
from ddpify.site import Site

_THROUGH = (ast.IfExp, ast.BoolOp, ast.Await)
_HOLDERS: Final = {
    ast.Attribute: "attribute",
    ast.Subscript: "element",
    ast.BinOp: "operand",
    ast.UnaryOp: "tested",
    ast.Compare: "tested",
    ast.Call: "given",
    ast.keyword: "given",
    ast.FormattedValue: "shown",
}


@dataclass(frozen=True)
class Use:
    """One use of a value: ``site`` is where it is read, ``kind`` says what for."""

    site: Site
    kind: str

    @property
    def takes_apart(self) -> bool:
        """Whether it fails with None: an attribute, an element, an operand."""
        return self.kind in ("attribute", "element", "operand")


def uses(call: RankCall) -> tuple[Use, ...] | None:
    """The uses of a call's value, by its caller if it is returned; None if they are not known."""
    above = parents(scope(call))
    node: ast.AST = call.node
    while isinstance(above.get(node), _THROUGH):
        node = above[node]
    holder = above.get(node)
    if isinstance(holder, (ast.Return, ast.Lambda)):
        return _of_caller(call)
    if isinstance(holder, ast.Assign):
        return _of_name(call, holder, above)
    if isinstance(holder, (ast.ListComp, ast.SetComp)):
        holder = above.get(holder)
        return () if isinstance(holder, ast.Expr) else None
    if isinstance(holder, ast.Expr) or _is_only_collected(call, holder, above):
        return ()
    kind = _kind(node, holder)
    return (Use(call.site, kind),) if kind is not None else None


def _kind(node: ast.AST, holder: ast.AST | None) -> str | None:
    given = isinstance(holder, ast.Subscript) and holder.slice is node
    return "given" if given else next((k for t, k in _HOLDERS.items() if type(holder) is t), None)


def _of_caller(call: RankCall) -> tuple[Use, ...] | None:
    return uses(call.stack[-1]) if call.stack else None


def _of_name(
    call: RankCall, made: ast.Assign, above: Mapping[ast.AST, ast.AST]
) -> tuple[Use, ...] | None:
    """Where a name is read on later lines than that on which the value is bound to it."""
    target = made.targets[0]
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return None
    read = [node for node in _reads(above, target) if node.lineno > (call.node.end_lineno or 0)]
    if read and all(isinstance(above[node], ast.Return) for node in read):
        return _of_caller(call)  # `ret = all_reduce(x); return ret`
    if not read and (isinstance(target, ast.Attribute) or made.targets[1:] or call.loops):
        return None  # it may be read elsewhere, or in the next round
    place = call.module.site
    return tuple(Use(place(node), _kind(node, above[node]) or "other") for node in read)


def _reads(nodes: Iterable[ast.AST], name: ast.expr) -> list[ast.expr]:
    spelled = ast.unparse(name)
    return [
        node
        for node in nodes
        if isinstance(node, (ast.Name, ast.Attribute))
        and isinstance(node.ctx, ast.Load)
        and type(node) is type(name)
        and ast.unparse(node) == spelled
    ]


def _is_only_collected(
    call: RankCall, holder: ast.AST | None, above: Mapping[ast.AST, ast.AST]
) -> bool:
    """Whether it goes into a list of this function that nothing reads."""
    name = _extended(holder.func) if isinstance(holder, ast.Call) else None
    if name is None or call.function is None or not any(definitions(call, name)):
        return False
    return all(_extended(above[node]) is node for node in _reads(above, name))


def _extended(node: ast.AST) -> ast.expr | None:
    """``parts`` of ``parts.append``."""
    appends = isinstance(node, ast.Attribute) and node.attr == "append"
    held = node.value if appends and isinstance(node, ast.Attribute) else None
    return held if isinstance(held, ast.Name) else None
