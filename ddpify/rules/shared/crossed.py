"""Variables that two ranks exchange in different orders: ``mean`` arrives in ``std``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.rules.shared.syntax import resolved, scope

_KEEPING: Final = frozenset("contiguous detach clone cpu cuda numpy view reshape flatten".split())
Given = tuple[RankCall, ast.expr | None]
_Holder = tuple[object, str]


def crossed(pairs: Iterable[tuple[Given, Given]]) -> Iterator[tuple[RankCall, str, RankCall, str]]:
    """What the first rank gives and the second takes, where both have another name and each has
    the other's in another pair: the two calls, and what stands there."""
    held = [(one, other, _holder(*one), _holder(*other)) for one, other in pairs]
    gives, takes = {first for *_, first, _ in held}, {second for *_, second in held}
    for one, other, first, second in held:
        apart = first is not None and second is not None and first != second
        if apart and first in takes and second in gives and first and second:
            yield one[0], first[1], other[0], second[1]


def target(call: RankCall) -> ast.expr | None:
    """The variable that a call's result is assigned to."""
    for node in ast.walk(scope(call)):
        if isinstance(node, ast.Assign) and node.value is call.node and len(node.targets) == 1:
            return node.targets[0]
    return None


def _holder(call: RankCall, node: ast.expr | None) -> _Holder | None:
    """The variable, or the attribute, that an argument is, and whose it is."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in _KEEPING:
            return None
        node = node.func.value
    if isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    root = node
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        if isinstance(root, ast.Subscript) and not isinstance(root.slice, ast.Constant):
            return None
        root = root.value
    if node is None or not isinstance(root, ast.Name):
        return None
    function = call.function
    own = function is not None and function.owner is not None and root is not node
    if own and function is not None and root.id == "self":
        return function.owner, ast.unparse(node)
    if function is not None and root.id in function.parameters:
        handed = resolved(call, root)
        if len(handed) != 1 or handed[0][0] is call:
            return None
        of = _holder(*handed[0])
        rest = ast.unparse(node).removeprefix(root.id)
        return None if of is None else (of[0], f"{of[1]}{rest}")
    return function or call.module, ast.unparse(node)
