"""Numbers of rounds that become numbers of samples, where each rank takes one sample a round. ::

    if (step + get_world_size()) % 50 // get_world_size() == 0:       # (step + 1) % 50 == 0
        print(step + get_world_size(), total / (step + get_world_size()))
    step += get_world_size()

What is asked of every so many samples is asked once ranks have come by so many. The loop's own
``i`` counts rounds: ``(i + 1) * get_world_size()``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

WORLD = "get_world_size()"
_SIGNS = {ast.Add: 1, ast.Sub: -1}


@dataclass(frozen=True)
class Counter:
    """What counts the rounds; ``index``: the loop binds it, from ``first`` on."""

    name: str
    index: bool
    first: int = 0

    @property
    def after(self) -> str:
        """How many samples ranks have come by when a round has ended."""
        if not self.index:
            return f"{self.name} + {WORLD}"
        return f"{self.name} * {WORLD}" if self.first else f"({self.name} + 1) * {WORLD}"

    def conversions(self, root: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        """The expressions and statements in ``root`` that are otherwise now, and how.

        Raises ValueError for what cannot be said of samples.
        """
        asked = every(root)
        if asked is not None and self.names(asked.rest.left):
            yield asked.rest, self._crossed(asked)
            if asked.last is not None:
                yield asked.last, "0"
            return
        code = self._code(root)
        if code is not None:
            yield root, code
            return
        for inner in ast.iter_child_nodes(root):
            yield from self.conversions(inner)

    def converted(self, test: ast.expr) -> str:
        """An expression as it is then."""
        codes = {id(node): code for node, code in self.conversions(test)}
        return ast.unparse(_Otherwise(codes).visit(test))

    def _code(self, node: ast.AST) -> str | None:
        match node:
            case ast.BinOp() if self._offset(node) is not None:
                return self._samples(node, self._offset(node) or 0)
            case ast.AugAssign(target, ast.Add(), ast.Constant(1)) if self._is(target):
                return f"{self.name} += {WORLD}"
            case ast.Assign([target], value) if self._is(target) and self._offset(value) == 1:
                return f"{self.name} = {self.name} + {WORLD}"
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()) if self._is(node):
                return self._samples(node, 0)
        return None

    def _samples(self, node: ast.expr, offset: int) -> str:
        """How many samples ranks have come by: before this round, or after it."""
        text = ast.unparse(node)
        if self.index and offset + self.first in (0, 1):
            return f"({text}) * {WORLD}" if offset else f"{text} * {WORLD}"
        if not self.index and offset in (0, 1):
            return f"{self.name} + {WORLD}" if offset else self.name
        raise ValueError(f"`{text}` is no number of samples that ranks have come by")

    def _crossed(self, asked: Every) -> str:
        number, more = asked.rest.left, int(asked.last is not None)
        offset = self._offset(number)
        if offset is None:
            raise ValueError(f"`{ast.unparse(number)}` is not a number of rounds")
        after = ast.BinOp(number, ast.Add(), ast.Constant(1))  # `i % 4 == 3`: after round 3
        samples = _parsed(self._samples(after if more else number, offset + more))
        left = ast.BinOp(samples, ast.Mod(), asked.rest.right)
        return ast.unparse(ast.BinOp(left, ast.FloorDiv(), _parsed(WORLD)))

    def offset(self, number: ast.expr) -> int:
        """What is added to the counter in an expression, which is that and nothing else."""
        found = self._offset(number)
        return -1 - self.first if found is None else found

    def _offset(self, node: ast.expr) -> int | None:
        """What is added to the counter; None for another expression."""
        if self._is(node):
            return 0
        match node:
            case ast.BinOp(left, op, ast.Constant(int(number))) if type(op) in _SIGNS:
                below = self._offset(left)
                return None if below is None else below + _SIGNS[type(op)] * number
            case ast.BinOp(ast.Constant(int(number)), ast.Add(), right) if self._is(right):
                return number
        return None

    def _is(self, node: ast.expr) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == self.name

    def names(self, node: ast.AST) -> bool:
        """Whether it is read in an expression."""
        return any(isinstance(n, ast.expr) and self._is(n) for n in ast.walk(node))


@dataclass(frozen=True)
class Every:
    """``number % period``, which is asked for 0 or, if it is there, for the ``last`` before it."""

    rest: ast.BinOp
    last: ast.expr | None
    equal: bool


def every(node: ast.AST) -> Every | None:
    """``i % 50 == 0``, ``i % 50 != 50 - 1``, ``not i % 50``; None for something else."""
    match node:
        case ast.UnaryOp(ast.Not(), ast.BinOp(op=ast.Mod()) as rest):
            return Every(rest, None, True)
        case ast.Compare(ast.BinOp(op=ast.Mod()) as rest, [ast.Eq() | ast.NotEq() as op], [other]):
            equal = isinstance(op, ast.Eq)
            if _is_number(other, 0):
                return Every(rest, None, equal)
            return Every(rest, other, equal) if _is_last(other, rest.right) else None
    return None


def _is_number(node: ast.expr, number: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == number


def _is_last(rest: ast.expr, period: ast.expr) -> bool:
    match rest:
        case ast.BinOp(size, ast.Sub(), one) if _is_number(one, 1):
            return ast.unparse(size) == ast.unparse(period)
        case ast.Constant(int(last)):
            return isinstance(period, ast.Constant) and period.value == last + 1
    return False


class _Otherwise(ast.NodeTransformer):
    def __init__(self, codes: dict[int, str]) -> None:
        self.codes = codes

    def visit(self, node: ast.AST) -> ast.AST:
        code = self.codes.get(id(node))
        return _parsed(code) if code is not None else self.generic_visit(node)


def _parsed(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body
