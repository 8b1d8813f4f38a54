"""The body of a loop before its model is called and from there on, by the names in it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddpify.facts.carried import read_early
from ddpify.facts.tree import is_name, names_in

Block = Sequence[ast.stmt]
SHAPES = frozenset("view reshape expand repeat unflatten zeros ones full randn rand empty".split())
OF_TENSORS = frozenset("data shape T dtype device grad requires_grad ndim is_cuda".split())


@dataclass(frozen=True)
class CutBody:
    """A loop's body before the model is called, and from there on."""

    made_by: Block
    rest: Block
    targets: set[str]

    @property
    def made(self) -> set[str]:
        """What is bound in a pass before the model is called."""
        return self.targets | stored(self.made_by)

    @property
    def live(self) -> list[str]:
        """Of that, what is read from there on, in the order in which it is bound."""
        read = read_early(self.rest, set())
        order = [*sorted(self.targets), *_in_order(self.made_by)]
        return [name for name in dict.fromkeys(order) if name in read and name in self.made]


def targets_of(node: ast.For | ast.While) -> list[ast.AST]:
    return [node.target] if isinstance(node, ast.For) else []


def stored(nodes: Iterable[ast.AST]) -> set[str]:
    return set(_in_order(nodes))


def _in_order(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id


def loaded(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            yield inner.id


def assigned(block: Block) -> Iterator[tuple[set[str], ast.expr]]:
    """Names, and what is assigned to them (several names where it is unpacked)."""
    for inner in _nodes(block):
        if isinstance(inner, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
            if inner.value is not None:
                yield {n for t in targets for n in names_in(t)}, inner.value


def flows(block: Block, silent: Collection[ast.AST]) -> Iterator[tuple[set[str], set[str]]]:
    """What may change, and what from; calls but ``silent`` ones may change what they are given."""
    for names, value in assigned(block):
        yield names, names | set(loaded(value))
    for inner in _nodes(block):
        if isinstance(inner, (ast.For, ast.comprehension)):
            yield names_in(inner.target), set(loaded(inner.iter))
        elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call):
            call = inner.value
            if call not in silent:
                yield _changed_by(call), set(loaded(inner))


def _changed_by(call: ast.Call) -> set[str]:
    """What a call may change: its receiver, and arguments that it is not given a new value for."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    owner = names_in(call.func) if isinstance(call.func, ast.Attribute) else set()
    return owner | {n for each in given if not _is_made_here(each) for n in names_in(each)}


def _is_made_here(node: ast.expr) -> bool:
    """``f(g(x))``, ``f("%d" % x)``, ``f(f"{x}")``: another value than those in it."""
    if isinstance(node, ast.BinOp):
        text = node.left.value if isinstance(node.left, ast.Constant) else None
        return isinstance(text, str) or isinstance(node.left, ast.JoinedStr)
    return isinstance(node, (ast.Call, ast.JoinedStr, ast.Compare))


def counts(block: Block, name: str) -> bool:
    """Whether a number is only counted up: ``steps += 1``."""
    stored_in = [n for n in _nodes(block) if isinstance(n, ast.stmt) and name in _targets(n)]
    return all(
        isinstance(n, ast.AugAssign) and isinstance(n.value, ast.Constant) for n in stored_in
    )


def _targets(statement: ast.stmt) -> set[str]:
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return {n for one in targets if one is not None for n in names_in(one)}


def takes_or_shapes(block: Block, name: str) -> bool:
    """Whether a number picks samples, or shapes what is made, in these statements."""
    for inner in _nodes(block):
        if isinstance(inner, ast.Subscript) and name in names_in(inner.slice):
            return True
        if isinstance(inner, ast.Call) and name in {n for a in inner.args for n in names_in(a)}:
            called = inner.func.attr if isinstance(inner.func, ast.Attribute) else ""
            if called in SHAPES:
                return True
    return False


def is_taken_apart(block: Block, name: str) -> bool:
    """``batch["x"]``, ``batch[0]``, ``batch.label``, ``for x in batch``, ``model(*batch)``."""
    nodes = _nodes(block)
    called = {n.func for n in nodes if isinstance(n, ast.Call)}
    return any(_takes_apart(inner, name) for inner in nodes if inner not in called)


def _takes_apart(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Subscript) and is_name(node.value, name):
        return not isinstance(node.slice, (ast.Slice, ast.Tuple))
    if isinstance(node, ast.Attribute) and is_name(node.value, name):
        return node.attr not in OF_TENSORS
    if isinstance(node, (ast.For, ast.comprehension)):
        return is_name(node.iter, name)
    return isinstance(node, ast.Starred) and is_name(node.value, name)


def merges_axes(node: ast.AST) -> bool:
    """``x.view(-1)``, ``x.reshape(b * t, 1)``, ``x.flatten()``: samples lie along no axis then."""
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        first = call.args[0] if call.args else None
        if name in ("flatten", "ravel") and not call.args and not call.keywords:
            return True
        if name in ("view", "reshape") and first is not None:
            product = isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mult)
            if product or (len(call.args) == 1 and ast.unparse(first) in ("-1", "(-1,)")):
                return True
    return False


def _nodes(block: Block) -> list[ast.AST]:
    return [n for statement in block for n in ast.walk(statement)]
