"""How long a list is on one rank, where that is sure."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from typing import Any, Final

from ddpify.ranks import sizes
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.values import Many
from ddpify.rules.shared.syntax import dotted, parents, resolved, scope

# Functions that leave a list as it is, and methods whose change of it is followed.
_ASKING: Final = frozenset("len print sum list tuple sorted reversed enumerate zip map".split())
_FOLLOWED: Final = frozenset("append extend insert".split())
_LEAVING = (
    *(ast.AugAssign, ast.For, ast.comprehension, ast.IfExp),
    *(ast.BinOp, ast.Compare, ast.Starred),
)


def length(value: RankValue, rank: int) -> int | None:
    """The number of elements; None if it is not known, be it since some were added later."""
    atom = value.atoms[rank]
    known = _known(atom)
    if known is None or value.items is None:
        return None
    number, written = known
    return number if len(value.items) == written else None


def _known(atom: Any) -> tuple[int, int] | None:
    """The length, and how many elements stand for them."""
    if isinstance(atom, Many):
        number = atom.number
        written = number if atom.key.startswith("[") else 1
        return (number, written) if isinstance(number, int) else None
    parts = atom.parts if isinstance(atom, Symbol) else ()
    if parts[:1] != ("Mult",):
        return None
    for one, times in (parts[1:3], (parts[2], parts[1])):
        held = _known(one)
        if held is not None and isinstance(times, int):
            return sizes.apply(operator.mul, held[0], times), held[1]
    return None


def is_given(value: RankValue | None, rank: int) -> bool | None:
    """Whether a rank has a list; None if that is not sure, as of one that was empty at first."""
    atom = value.atoms[rank] if value is not None else None
    if value is None or atom is None:
        return False
    empty = isinstance(atom, Many) and atom.number == 0
    return True if value.items and not empty else None


def stays(call: RankCall, given: ast.expr) -> bool:
    """Whether what is known of a list still holds: nothing got it that may add or take away."""
    above = parents(scope(call))
    for node in _lists(given):
        if not isinstance(node, ast.Name):
            return False  # an attribute may be changed anywhere
        mentions = [one for one in above if isinstance(one, ast.Name) and one.id == node.id]
        if not all(_leaves(call, one, above) for one in mentions):
            return False
        if not any(isinstance(one.ctx, ast.Store) for one in mentions):
            handed = [(by, one) for by, one in resolved(call, node) if by is not call]
            if not handed or not all(stays(by, one) for by, one in handed):
                return False
    return True


def _lists(node: ast.expr) -> Iterator[ast.expr]:
    """The names and attributes in it that may be lists."""
    arms: tuple[ast.expr, ...] = ()
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield node
    elif isinstance(node, ast.IfExp):
        arms = (node.body, node.orelse)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        arms = (node.left, node.right)
    for one in arms:
        yield from _lists(one)


def _leaves(call: RankCall, node: ast.Name, above: dict[ast.AST, ast.AST]) -> bool:
    """Whether this mention of a list leaves it as long as it is, as far as the reader sees."""
    holder = above[node]
    if isinstance(holder, (ast.Assign, ast.AnnAssign)):
        return isinstance(node.ctx, ast.Store)  # not `alias = parts`
    if isinstance(holder, ast.Subscript):
        taken = isinstance(holder.ctx, ast.Del)
        other = isinstance(holder.ctx, ast.Store) and isinstance(holder.slice, ast.Slice)
        return not taken and not other
    if isinstance(holder, ast.Attribute):
        return holder.attr in _FOLLOWED
    if isinstance(holder, ast.Return):
        return True
    outer = above[holder] if isinstance(holder, ast.keyword) else holder
    if not isinstance(outer, ast.Call):
        return isinstance(holder, _LEAVING)
    if outer is call.node or (isinstance(outer.func, ast.Name) and outer.func.id in _ASKING):
        return True
    return (dotted(call.module, outer.func) or "").startswith("torch.")
