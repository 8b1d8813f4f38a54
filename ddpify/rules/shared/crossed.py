"""Variables that two ranks exchange in different orders: ``mean`` arrives in ``std``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.rules.shared.sides import of_torch
from ddpify.rules.shared.syntax import resolved, scope_nodes

_SAME: Final = frozenset("detach contiguous clone cpu".split())
Given = tuple[RankCall, ast.expr | None]
_Holder = tuple[object, str]
_Meeting = tuple[Given, Given, "_Holder | None", "_Holder | None"]


def crossed(pairs: Iterable[tuple[Given, Given]]) -> Iterator[tuple[RankCall, str, RankCall, str]]:
    """What the first rank gives and the second takes, where both have another name and each has
    the other's in another pair: the two calls, and what stands there."""
    pairs = list(pairs)
    held = [(one, other, _holder(*one), _holder(*other)) for one, other in pairs]
    named = [(one, other, _named(*one), _named(*other)) for one, other in pairs]
    held = _by_name(held) or _by_name(named) or held
    gives, takes = {first for *_, first, _ in held}, {second for *_, second in held}
    for one, other, first, second in held:
        if first and second and first != second and first in takes and second in gives:
            yield one[0], first[1], _asking(*other), second[1]


def _by_name(held: list[_Meeting]) -> list[_Meeting]:
    """The same, with variables of two functions by their names alone: where each side has a
    function of its own, and both have the very same names in another order."""
    sides = [[one for *_, one, _ in held], [other for *_, other in held]]
    if any(one is None for side in sides for one in side):
        return []
    owners = [{one[0] for one in side if one} for side in sides]
    names = [[one[1] for one in side if one] for side in sides]
    alike = sorted(names[0]) == sorted(names[1]) and len(set(names[0])) == len(names[0])
    if not alike or any(len(one) != 1 for one in owners):
        return []
    return [
        (one, other, ("", a), ("", b)) for (one, other, *_), a, b in zip(held, *names, strict=True)
    ]


def _named(call: RankCall, node: ast.expr | None) -> _Holder | None:
    """The variable as its function calls it, a parameter that is given no variable among them."""
    bare = _bare(node)
    return (call.function, bare.id) if isinstance(bare, ast.Name) else None


def exchanged(call: RankCall) -> ast.expr | None:
    """What is sent, or received; that of ``mean = comm.recv()`` is what the name stands for."""
    if of_torch(call):
        return call.node_of(0, "tensor")
    if call.method == "recv":
        return _target(call)
    return call.node_of(0, "obj" if call.method == "send" else "buf")


def _target(call: RankCall) -> ast.expr | None:
    """The variable that a call's result is assigned to."""
    for node in scope_nodes(call):
        if isinstance(node, ast.Assign) and node.value is call.node:
            return node.targets[0]
    return None


def _bare(node: ast.expr | None) -> ast.expr | None:
    """``h`` of ``h.detach().contiguous()``."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in _SAME or node.args:
            break
        node = node.func.value
    return node


def _asking(call: RankCall, node: ast.expr | None) -> RankCall:
    """The call itself, or that of the function that only makes and gives back what it fills: of
    ``codes = link.receive(16, 12)``."""
    ends = [one.value for one in scope_nodes(call) if isinstance(one, ast.Return)]
    caller = call.stack[-1] if call.stack and node is not None and ends else None
    if caller is None or node is None or caller.target is not call.function:
        return call
    given = {ast.unparse(one) if one is not None else "" for one in ends}
    return caller if given == {ast.unparse(node)} and _target(caller) is not None else call


def _holder(call: RankCall, node: ast.expr | None) -> _Holder | None:
    """The variable, or the attribute, that an argument is, and whose it is."""
    node = _bare(node)
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if node is None or not isinstance(root, ast.Name):
        return None
    function = call.function
    if function is None or root.id not in function.parameters:
        asking = _asking(call, node)
        target = _target(asking) if asking is not call else None
        return (function, ast.unparse(node)) if target is None else _holder(asking, target)
    if function.owner is not None and root.id == function.parameters[0]:
        return function.owner, ast.unparse(node)
    handed = resolved(call, root)
    of = _holder(*handed[0]) if len(handed) == 1 and handed[0][0] is not call else None
    rest = ast.unparse(node).removeprefix(root.id)
    return None if of is None else (of[0], f"{of[1]}{rest}")
