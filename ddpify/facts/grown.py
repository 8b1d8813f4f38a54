"""What the text of a function binds, what lists it fills, and how often each time it is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

GROWS = {"append": 0, "insert": 1, "extend": 0}  # by the argument that is put in
BLOCKS = (ast.For, ast.While, ast.If)
KEEPS_LENGTH = frozenset({"enumerate", "reversed", "list", "tuple"})


@dataclass(frozen=True)
class Filling:
    """Something, or all of something, is put into a list under these loops and conditions."""

    entry: ast.expr
    extends: bool
    around: tuple[ast.AST, ...]


class MethodText:
    """The names of a function: what each is bound to, given, or takes in turn."""

    def __init__(self, function: ast.AST) -> None:
        self.bound: dict[str, list[ast.expr]] = {}
        self.grown: dict[str, list[Filling]] = {}
        self.turns: dict[str, list[ast.expr]] = {}  # what a loop over it gives to the name
        self.counted: dict[str, list[ast.expr]] = {}  # what `enumerate` or `range` counts
        self.returned: list[ast.expr | None] = []
        self.training: list[ast.expr | None] = []
        self._read(function, ())

    def _read(self, node: ast.AST, around: tuple[ast.AST, ...]) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(
                target=target, value=value
            ):
                self._bind(target, value)
            case ast.For(target=target, iter=over) | ast.comprehension(target=target, iter=over):
                self._turn(target, over)
            case ast.Return(value=value):
                self.returned.append(value)
                self.training += [value] if any(_trains(one, node) for one in around) else []
        self._grow(node, around)
        inside = (*around, node) if isinstance(node, BLOCKS) else around
        for child in ast.iter_child_nodes(node):
            self._read(child, inside)

    def _grow(self, node: ast.AST, around: tuple[ast.AST, ...]) -> None:
        match node:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                self.grown.setdefault(name, []).append(Filling(value, True, around))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=how), args=args):
                if how in GROWS and len(args) > GROWS[how]:
                    made = Filling(args[GROWS[how]], how == "extend", around)
                    self.grown.setdefault(name, []).append(made)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.bound.setdefault(target.id, []).append(value)
        for index, part in enumerate(getattr(target, "elts", [])):
            entry = ast.Subscript(value, ast.Constant(index), ast.Load())
            self._bind(part, entry)

    def _turn(self, target: ast.expr, over: ast.expr) -> None:
        name = (
            over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
        )
        args = over.args if isinstance(over, ast.Call) else []
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        if name == "range" and isinstance(target, ast.Name):
            self.counted.setdefault(target.id, []).append(over)
        elif name == "enumerate" and args and len(parts) == 2 and isinstance(parts[0], ast.Name):
            self.counted.setdefault(parts[0].id, []).append(args[0])
            self._turn(parts[1], args[0])
        elif name == "zip" and len(parts) == len(args):
            for part, each in zip(parts, args, strict=True):
                self._turn(part, each)
        elif name in KEEPS_LENGTH and args:
            self._turn(target, args[0])
        else:
            entry = ast.Subscript(over, ast.Name("_", ast.Load()), ast.Load())
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    whole = node is target
                    self.turns.setdefault(node.id, []).append(over if whole else entry)


def _trains(block: ast.AST, returned: ast.Return) -> bool:
    """Whether a block has a ``return`` where ``self.training`` holds."""
    if not isinstance(block, ast.If):
        return False
    test = ast.unparse(block.test)
    branch = {"self.training": block.body, "not self.training": block.orelse}.get(test, [])
    return any(returned in ast.walk(statement) for statement in branch)


def lengths(over: ast.expr) -> Iterator[ast.expr]:
    """What a loop may be as long as: ``zip(xs, self.heads)`` as one of them, the shortest."""
    name = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
    if isinstance(over, ast.Call) and over.args and name in {*KEEPS_LENGTH, "zip"}:
        for each in over.args:
            yield from lengths(each)
    else:
        yield over


def stored(owner: ast.ClassDef) -> dict[str, list[ast.expr]]:
    """What the methods of a class keep in ``self``, and put into what is kept there."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(owner):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    _store(found, target, value)
            case ast.AugAssign(target=target, value=value):
                _store(found, target, value)
            case ast.Call(func=ast.Attribute(value=target, attr=how), args=[*_, value]):
                if how in GROWS or how == "add_module":
                    _store(found, target, value)
    return found


def _store(found: dict[str, list[ast.expr]], target: ast.expr, value: ast.expr) -> None:
    match target:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            found.setdefault(name, []).append(value)
        case ast.Tuple(elts=parts):
            for part in parts:
                _store(found, part, value)
