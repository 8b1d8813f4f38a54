"""Peers that are computed from the rank: whether they fit with three and with four processes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ddpify.ranks import words
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.modules import Module
from ddpify.ranks.operations import ARITHMETIC, COMPARISONS
from ddpify.ranks.run import Run
from ddpify.rules.shared.sides import among_all, peer_name, sends
from ddpify.rules.shared.syntax import scope

_DEEPEST: Final = 12
_WORLDS: Final = (3, 4)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_POSTED: Final = f"{words.DIST}P2POp"
Edges = Counter[tuple[int, int]]


@dataclass(frozen=True)
class _Side:
    """A side of a message, and the expression of its peer."""

    call: RankCall
    sends: bool
    peer: ast.expr | None


def unmet_with_more(run: Run) -> RankCall | None:
    """A receive that waits for who sends to somebody else, with three and with four processes,
    where all is right with two."""
    others = run.named(f"{words.DIST}batch_isend_irecv", _POSTED)
    found = [_side(c) for c in among_all(run, others) if c.method != "batch_isend_irecv"]
    if any(_is_for_some(run, one.call) for one in found):
        return None
    if _meet(run, found, 2) is True and all(_meet(run, found, n) is False for n in _WORLDS):
        return next((one.call for one in found if not one.sends), None)
    return None


def _side(call: RankCall) -> _Side:
    if call.name != _POSTED:
        return _Side(call, sends(call), call.node_of(1, peer_name(call)))
    way = call.arg(0, "op")
    names = way.names() if way is not None else set()
    return _Side(
        call, names == {f"{words.DIST}isend"}, call.node_of(2, "peer") if len(names) == 1 else None
    )


def _is_for_some(run: Run, call: RankCall) -> bool:
    """Whether some ranks make it, or all of them with some numbers of processes only."""
    if call.ranks != ALL or any(guard.test.by_rank for guard in call.conditions):
        return True
    return any(_tells_apart(run, one, node) for one in call.way for node in ast.walk(scope(one)))


def _tells_apart(run: Run, call: RankCall, node: ast.AST) -> bool:
    """``assert world == 2``, ``if world != 2: return``."""
    if not isinstance(node, (ast.Assert, ast.If)):
        return False
    return len({Numbers(run, 0, world).of(call, node.test) for world in (2, *_WORLDS)}) > 1


def _meet(run: Run, found: list[_Side], world: int) -> bool | None:
    """Whether each message has both sides; None if a peer is not known, or is no rank."""
    sent, received = Edges(), Edges()
    for rank in range(world):
        numbers = Numbers(run, rank, world)
        for one in found:
            peer = numbers.of(one.call, one.peer)
            if not isinstance(peer, int) or not 0 <= peer < world:
                return None
            edges, way = (sent, (rank, peer)) if one.sends else (received, (peer, rank))
            edges[way] += 1
    return sent == received


@dataclass(frozen=True)
class _Scope:
    """Where an expression stands, and the call that led there."""

    module: Module
    node: ast.AST
    caller: RankCall | None


def _scope(call: RankCall) -> _Scope:
    """Where a call stands, and the call that entered that function."""
    return _Scope(call.module, scope(call), call.stack[-1] if call.stack else None)


@dataclass(frozen=True)
class Numbers:
    """What expressions are on one rank of so many, read from the text: each name is assigned
    once."""

    run: Run
    rank: int
    world: int

    def of(self, call: RankCall, node: ast.expr | None) -> Any:
        """The number, or the tuple of numbers; None if that is not known."""
        return self._value(node, _scope(call), 0)

    def _value(self, node: ast.expr | None, at: _Scope, depth: int) -> Any:
        if depth > _DEEPEST or node is None:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int) else None
        if isinstance(node, (ast.BinOp, ast.Compare)):
            return self._computed(node, at, depth + 1)
        if isinstance(node, ast.Call):
            return self._called(node, at, depth + 1)
        if isinstance(node, ast.Tuple):
            return tuple(self._value(one, at, depth + 1) for one in node.elts)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node, at, depth + 1)
        return None

    def _computed(self, node: ast.BinOp | ast.Compare, at: _Scope, depth: int) -> Any:
        if isinstance(node, ast.Compare):
            parts, names = (node.left, node.comparators[0]), COMPARISONS
            kind = type(node.ops[0]).__name__ if len(node.ops) == 1 else ""
        else:
            parts, names, kind = (node.left, node.right), ARITHMETIC, type(node.op).__name__
        one, other = (self._value(part, at, depth) for part in parts)
        if kind not in names or not isinstance(one, int) or not isinstance(other, int):
            return None
        try:
            return names[kind](one, other)
        except ArithmeticError:
            return None

    def _called(self, node: ast.Call, at: _Scope, depth: int) -> Any:
        made = next((call for call in self.run.calls if call.node is node), None)
        name = words.canonical(made.name) if made is not None else ""
        if name in words.RANK_CALLS:
            return self.rank
        if name in words.SIZE_CALLS:
            return self.world
        target = made.target if made is not None else None
        nodes = ast.walk(target.node) if target is not None else ()
        returns = [one for one in nodes if isinstance(one, ast.Return)]
        if target is None or len(returns) != 1:
            return None
        return self._value(returns[0].value, _Scope(target.module, target.node, made), depth)

    def _named(self, node: ast.Name | ast.Attribute, at: _Scope, depth: int) -> Any:
        root = at.node if isinstance(node, ast.Name) else at.module.tree
        found = [*_assigned(root, ast.unparse(node))]
        handed = _given(at, node.id) if isinstance(node, ast.Name) else None
        if len(found) + (handed is not None) != 1:
            return None
        if handed is not None:
            return self._value(*handed, depth)
        value, place = found[0]
        if value is None:
            return None
        held = self._value(
            value, at if isinstance(node, ast.Name) else self._around(at.module, value), depth
        )
        return held if place is None else held[place] if isinstance(held, tuple) else None

    def _around(self, module: Module, value: ast.expr) -> _Scope:
        """Where ``self.peer = value`` stands, and who called that."""
        functions = (n for n in ast.walk(module.tree) if isinstance(n, _FUNCTIONS))
        node = next((n for n in functions if any(one is value for one in ast.walk(n))), None)
        classes = [n for n in ast.walk(module.tree) if isinstance(n, ast.ClassDef)]
        owner = next((n.name for n in classes if node in n.body), "")
        calls = [c for c in self.run.calls if c.target is not None and c.target.node is node] or [
            *self.run.named(f"{module.name}.{owner}")  # made, and not looked into
        ]
        return _Scope(module, node or module.tree, calls[0] if len(calls) == 1 else None)


def _assigned(root: ast.AST, name: str) -> Iterator[tuple[ast.expr | None, int | None]]:
    """What is assigned to a name, and which of its elements; None for what is not followed."""
    nodes = [*ast.walk(root)]
    plain: dict[ast.AST, tuple[ast.expr, int | None]] = {
        one: held for node in nodes for one, held in _targets(node)
    }
    for node in nodes:
        if isinstance(getattr(node, "ctx", None), ast.Store) and ast.unparse(node) == name:
            yield plain.get(node) or (None, None)


def _targets(node: ast.AST) -> Iterator[tuple[ast.expr, tuple[ast.expr, int | None]]]:
    """What a statement assigns to, the value, and which of its elements."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        yield target, (node.value, None)
        for place, one in enumerate(target.elts if isinstance(target, ast.Tuple) else ()):
            yield one, (node.value, place)


def _given(at: _Scope, name: str) -> tuple[ast.expr, _Scope] | None:
    """What the caller gives for a parameter."""
    call = at.caller
    if call is None or not isinstance(at.node, _FUNCTIONS):
        return None
    names = [one.arg for one in (*at.node.args.posonlyargs, *at.node.args.args)]
    names = names[1:] if names[:1] == ["self"] else names
    node = call.node_of(names.index(name), name) if name in names else None
    return (node, _scope(call)) if node is not None else None
