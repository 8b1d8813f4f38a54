"""Which conditions let rank 0 in, and no other: ``rank == 0``, ``is_main``, ``is_main()``.

The rank itself is asked for, not what is made of it: ``rank % 8 == 0`` lets in one of each node.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree, last_name
from ddpify.facts.values import NOTHING, Kind, Value
from ddpify.rules.conversion.names import dotted

_DEPTH: Final = 4
_GROUP_RANK: Final = "torch.distributed.get_rank"
_HAS_RANKS: Final = ("torch.distributed.is_initialized", "torch.distributed.is_available")
_Given = tuple[Tree, ast.expr | None]  # None: by something else than one assignment of a value


def is_first_rank(facts: Facts, tree: Tree, node: ast.expr) -> bool:
    """Whether a condition holds on rank 0 alone, or in one process."""
    return _FirstRank(facts).first(tree, node, _DEPTH)


@dataclass(frozen=True)
class _FirstRank:
    facts: Facts

    def first(self, tree: Tree, node: ast.expr, depth: int) -> bool:
        if depth == 0:
            return False
        if isinstance(node, ast.Compare):
            return self._compared(tree, node, depth)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            others = [one for one in node.values if not self.first(tree, one, depth)]
            return len(others) < len(node.values) and all(self._alone(tree, o) for o in others)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._rank(tree, node.operand, depth)
        return self._each(tree, node, depth, self.first, lambda value: value is True)

    def _compared(self, tree: Tree, node: ast.Compare, depth: int) -> bool:
        """``rank == 0``, ``rank in (-1, 0)``."""
        if len(node.ops) != 1:
            return False
        one, other = node.left, node.comparators[0]
        if isinstance(one, ast.Constant):
            one, other = other, one
        try:
            value = ast.literal_eval(other)
        except ValueError:
            return False
        if isinstance(node.ops[0], ast.Eq):
            zero = type(value) is int and value == 0
        else:
            listed = isinstance(node.ops[0], ast.In) and isinstance(value, (tuple, list, set))
            zero = listed and set(value) in ({0}, {0, -1})
        return zero and self._rank(tree, one, depth)

    def _rank(self, tree: Tree, node: ast.expr, depth: int) -> bool:
        """Whether a number is the rank, or in one process some number up to 0."""
        value = self._value(tree, node)
        if depth == 0 or not value.dep(Kind.RANK):
            return False
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "int" and len(node.args) == 1:
            return self._rank(tree, node.args[0], depth)
        if isinstance(node, ast.IfExp):
            both: list[_Given] = [(tree, node.body), (tree, node.orelse)]
            return self._agree(both, depth, self._rank, _is_up_to_zero)
        if isinstance(node, ast.Name | ast.Attribute):
            given = [*self._given(last_name(node))]
            read = [(tree, one) for tree, one in given if one is not None]
            if read and not self._agree(read, depth, self._rank, _is_up_to_zero):
                return False
            return len(read) == len(given) > 0 or self._is_itself(tree, node, value)
        if isinstance(node, ast.Call):
            found = self._each(tree, node, depth, self._rank, _is_up_to_zero)
            return found or self._is_itself(tree, node, value)
        return isinstance(node, ast.Subscript) and self._is_itself(tree, node, value)

    def _is_itself(self, tree: Tree, node: ast.expr, value: Value) -> bool:
        """``dist.get_rank()``, ``os.environ["RANK"]``, or a parameter that is given one."""
        if isinstance(node, ast.Call) and dotted(tree, node.func) == _GROUP_RANK:
            return not node.args and not node.keywords
        outside = not isinstance(node, ast.Call) or not self._returned(node.func)
        return outside and bool(value.things) and all(t.kind is Kind.RANK for t in value.things)

    def _alone(self, tree: Tree, node: ast.expr) -> bool:
        """``not distributed``, ``world_size == 1``: there is one process, if it holds."""
        if isinstance(node, ast.Compare):
            ends = [node.left, *node.comparators]
            number = next((one.value for one in ends if isinstance(one, ast.Constant)), None)
            sizes = [one for one in ends if self._value(tree, one).dep(Kind.WORLD)]
            return len(ends) == 2 and len(sizes) == 1 and number == 1 and _is_at_most(node.ops[0])
        if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.Not):
            return False
        if isinstance(node.operand, ast.Call):
            return dotted(tree, node.operand.func) in _HAS_RANKS
        value = self._value(tree, node.operand)
        return bool(value.dep(Kind.WORLD) or value.dep(Kind.RANK))

    def _each(
        self,
        tree: Tree,
        node: ast.expr,
        depth: int,
        asked: Callable[[Tree, ast.expr, int], bool],
        alone: Callable[[object], bool],
    ) -> bool:
        """Whether all that a name is given, or a function returns, is so."""
        if isinstance(node, ast.Name | ast.Attribute):
            return self._agree([*self._given(last_name(node))], depth, asked, alone)
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            return self._agree([*self._returned(node.func)], depth, asked, alone)
        return False

    @staticmethod
    def _agree(
        found: Sequence[_Given],
        depth: int,
        asked: Callable[[Tree, ast.expr, int], bool],
        alone: Callable[[object], bool],
    ) -> bool:
        """Whether one of these is so, and the others are what they are in one process."""
        if any(node is None for _, node in found):
            return False
        rest = [node for tree, node in found if node and not asked(tree, node, depth - 1)]
        return len(rest) < len(found) and all(alone(_constant(one)) for one in rest)

    def _given(self, name: str) -> Iterator[_Given]:
        """What any name or attribute that is called so is given."""
        for tree in self.facts.trees.values():
            for node in tree.nodes():
                if isinstance(node, ast.arg) and node.arg == name:
                    yield tree, None
                stored = isinstance(getattr(node, "ctx", None), ast.Store)
                if not stored or last_name(node) != name:
                    continue
                above = tree.parent(node)
                plain = isinstance(above, ast.Assign | ast.AnnAssign)
                yield tree, above.value if plain and isinstance(above, ast.Assign) else None

    def _returned(self, func: ast.expr) -> list[_Given]:
        found: list[_Given] = []
        for tree in self.facts.trees.values():
            for node in tree.nodes():
                if isinstance(node, ast.FunctionDef) and node.name == last_name(func):
                    returns = (one for one in ast.walk(node) if isinstance(one, ast.Return))
                    found += [(tree, one.value) for one in returns]
        return found

    def _value(self, tree: Tree, node: ast.expr) -> Value:
        return self.facts.values.get(tree.site(node)) or NOTHING


def _constant(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _is_up_to_zero(value: object) -> bool:
    return type(value) is int and value <= 0


def _is_at_most(op: ast.cmpop) -> bool:
    return isinstance(op, ast.Eq | ast.LtE)
