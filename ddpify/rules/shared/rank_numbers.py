"""What numbers are on one rank of so many: peers and conditions that are computed from the rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ddpify.ranks import sizes
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import Module
from ddpify.ranks.operations import ARITHMETIC, COMPARISONS
from ddpify.ranks.origins import COMPUTED, RANK
from ddpify.ranks.run import Run
from ddpify.rules.shared.parents import SPAWN
from ddpify.rules.shared.syntax import scope

_DEEPEST: Final = 12
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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
class RankNumbers:
    """What expressions are on one rank of so many, read from the text: each name is assigned
    once."""

    run: Run
    rank: int
    world: int

    def of(self, call: RankCall, node: ast.expr | None) -> Any:
        """The number, or the tuple of numbers; None if that is not known."""
        return self._value(node, _scope(call), 0)

    def at_top(self, call: RankCall, node: ast.expr | None) -> Any:
        """The same, of what stands outside of functions in the call's file."""
        return self._value(node, _Scope(call.module, call.module.tree, None), 0)

    def _value(self, node: ast.expr | None, at: _Scope, depth: int) -> Any:
        if depth > _DEEPEST or node is None:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int) else None
        if isinstance(node, (ast.BinOp, ast.Compare)):
            return self._computed(node, at, depth + 1)
        if isinstance(node, (ast.UnaryOp, ast.BoolOp)):
            return self._joined(node, at, depth + 1)
        if isinstance(node, ast.Call):
            return self._called(node, at, depth + 1)
        if isinstance(node, ast.Tuple):
            return tuple(self._value(one, at, depth + 1) for one in node.elts)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node, at, depth + 1)
        return None

    def _computed(self, node: ast.BinOp | ast.Compare, at: _Scope, depth: int) -> Any:
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            held = [self._value(part, at, depth) for part in parts]
            pairs = zip(node.ops, held, held[1:], strict=False)
            found = [_applied(COMPARISONS, op, one, other) for op, one, other in pairs]
            return None if None in found else all(found)
        one, other = (self._value(part, at, depth) for part in (node.left, node.right))
        return _applied(ARITHMETIC, node.op, one, other)

    def _joined(self, node: ast.UnaryOp | ast.BoolOp, at: _Scope, depth: int) -> Any:
        """``not rank``, ``0 < rank and rank < 3``"""
        if isinstance(node, ast.UnaryOp):
            held = self._value(node.operand, at, depth)
            return not held if isinstance(node.op, ast.Not) and held is not None else None
        ends = isinstance(node.op, ast.Or)
        found = [self._value(part, at, depth) for part in node.values]
        if any(one is not None and bool(one) is ends for one in found):
            return ends
        return None if None in found else not ends

    def _called(self, node: ast.Call, at: _Scope, depth: int) -> Any:
        made = next((call for call in self.run.calls if call.node is node), None)
        target = made.target if made is not None else None
        if made is None or target is None:
            return self._recorded(made.result) if made is not None else None
        returns = [one for one in ast.walk(target.node) if isinstance(one, ast.Return)]
        if len(returns) != 1:
            return None
        return self._value(returns[0].value, _Scope(target.module, target.node, made), depth)

    def _recorded(self, value: RankValue | None) -> Any:
        """What was read on two ranks, if it is the rank or hangs on the number of processes."""
        if value is None or not value.known:
            return None
        if value.atoms == (0, 1) and value.origins:
            own = all(o.kind == RANK and not o.what.startswith(COMPUTED) for o in value.origins)
            return self.rank if own else None
        return sizes.with_so_many(value.constant, self.world)

    def _named(self, node: ast.Name | ast.Attribute, at: _Scope, depth: int) -> Any:
        name, local = ast.unparse(node), isinstance(node, ast.Name)
        found = [*_assigned(at.node if local else at.module.tree, name)]
        if local and not found:
            return self._free(name, at, depth)
        if len(found) != 1 or (local and name in _parameters(at.node)):
            return None
        value, place = found[0]
        if value is None:
            return None
        held = self._value(value, at if local else self._around(at.module, value), depth)
        return held if place is None else held[place] if isinstance(held, tuple) else None

    def _free(self, name: str, at: _Scope, depth: int) -> Any:
        """A name that the function assigns nothing to: a parameter, or one of the file."""
        if name not in _parameters(at.node):
            top = _Scope(at.module, at.module.tree, None)
            return self._named(ast.Name(name), top, depth) if at.node is not top.node else None
        spawned = {call.node for call in self.run.named(SPAWN)}
        handed = _given(at, name) if at.caller is None or at.caller.node not in spawned else None
        if handed is not None:
            return self._value(*handed, depth)
        held = {self._recorded(one) for one in self._read(name, at)}
        return held.pop() if len(held) == 1 else None

    def _read(self, name: str, at: _Scope) -> Iterator[RankValue]:
        """What a name was where the function hands it on."""
        for call in self.run.calls:
            if call.function is not None and call.function.node is at.node and not call.star:
                named = [(one.value, call.kwargs.get(one.arg or "")) for one in call.node.keywords]
                for node, value in (*zip(call.node.args, call.args, strict=False), *named):
                    if isinstance(node, ast.Name) and node.id == name and value is not None:
                        yield value

    def _around(self, module: Module, value: ast.expr) -> _Scope:
        """Where ``self.peer = value`` stands, and who called that."""
        functions = (n for n in module.nodes if isinstance(n, _FUNCTIONS))
        node = next((n for n in functions if any(one is value for one in ast.walk(n))), None)
        classes = [n for n in module.nodes if isinstance(n, ast.ClassDef)]
        owner = next((n.name for n in classes if node in n.body), "")
        calls = [c for c in self.run.calls if c.target is not None and c.target.node is node] or [
            *self.run.named(f"{module.name}.{owner}")  # made, and not looked into
        ]
        return _Scope(module, node or module.tree, calls[0] if len(calls) == 1 else None)


def _applied(names: Mapping[str, Any], kind: ast.AST, one: Any, other: Any) -> Any:
    if not isinstance(one, int) or not isinstance(other, int):
        return None
    try:
        return names[type(kind).__name__](one, other)
    except (ArithmeticError, KeyError):
        return None


def _parameters(node: ast.AST) -> list[str]:
    if not isinstance(node, _FUNCTIONS):
        return []
    return [one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)]


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
