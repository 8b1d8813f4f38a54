"""Options with which a program runs on the CPU, as its own conditions say: `--no-cuda`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ddpify.advice.arguments import DECLARES, options
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Guard
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind
from ddpify.source import Site

CPU: Final = "cpu"
GPU: Final = "cuda"
_FLAGS: Final = {"store_true": True, "store_false": False}
_PLACES: Final = ("torch.device", ".to")
_DEPTH: Final = 4  # of names for conditions


def cpu_flags(facts: Facts) -> frozenset[str]:
    """The names of the flags without which a GPU is used, and with which none is."""
    flags = dict(_flags(facts))
    return frozenset(
        name for name, value in flags.items() if _OnCommandLine(facts, name, value).on_cpu
    )


def device_options(facts: Facts) -> frozenset[str]:
    """The names of the options whose value is the device: ``torch.device(args.device)``."""
    placed = [call.args[0] for call in facts.named(*_PLACES) if call.args]
    return frozenset(
        thing.name
        for value in placed
        if len(value.things) == 1
        for thing in value.of(Kind.ARGUMENT)
    )


def _flags(facts: Facts) -> Iterator[tuple[str, bool]]:
    """Each flag, and what its name is where it is given."""
    known = {option.site: option.name for option in options(facts)}
    for call in facts.calls:
        action = call.kwargs.get("action", NOTHING)
        if call.name in DECLARES and call.site in known and action.const in _FLAGS:
            yield known[call.site], _FLAGS[action.const]


@dataclass(frozen=True)
class _OnCommandLine:
    """The program with one flag on its command line: the option ``name`` is ``value``."""

    facts: Facts
    name: str
    value: bool

    @property
    def on_cpu(self) -> bool:
        """Whether each choice between the CPU and something else is for the CPU then."""
        moved = [self._is_reached(call.where.guards) for call in self.facts.named(".cuda")]
        sides = {CPU: list[bool | None](), GPU: list[bool | None]()}
        for tree in self.facts.trees.values():
            for node in tree.nodes():
                text = node.value if isinstance(node, ast.Constant) else None
                device = text.partition(":")[0] if isinstance(text, str) else ""
                if device in sides:
                    sides[device] += list(self._sides(tree, node)) or [None] * (device == GPU)
        other = any(moved) or any(one is not False for one in sides[GPU])
        return bool(moved or sides[CPU]) and not other and all(sides[CPU])

    def _is_reached(self, guards: tuple[Guard, ...]) -> bool:
        tests = ((self._truth_at(guard.site), guard.holds) for guard in guards)
        return not any(truth is not None and truth is not holds for truth, holds in tests)

    def _sides(self, tree: Tree, node: ast.AST) -> Iterator[bool | None]:
        """Whether the side of a condition on which a text stands is taken, if it is on one."""
        below = node
        for above in tree.ancestors(node):
            if isinstance(above, (ast.FunctionDef, ast.Lambda)):
                return
            if isinstance(above, (ast.If, ast.IfExp)) and below is not above.test:
                truth = self._truth(tree, above.test)
                body = above.body if isinstance(above, ast.If) else [above.body]
                yield None if truth is None else truth is (below in body)
                return
            below = above

    def _truth_at(self, site: Site) -> bool | None:
        tree = self.facts.tree(site)
        node = tree.expression(site)
        return self._truth(tree, node) if node is not None else None

    def _truth(self, tree: Tree, node: ast.expr, depth: int = _DEPTH) -> bool | None:
        """What a condition is for sure; None where more than the flag decides."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._truth(tree, node.operand, depth)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            parts = {self._truth(tree, one, depth) for one in node.values}
            decides = isinstance(node.op, ast.Or)
            return (
                decides if decides in parts else (not decides if parts == {not decides} else None)
            )
        if not isinstance(node, (ast.Name, ast.Attribute)) or not depth:
            return None
        names = self.facts.values.get(tree.site(node), NOTHING).of(Kind.ARGUMENT)
        if names and {thing.name for thing in names} == {self.name}:
            return self.value
        found = {self._truth(tree, value, depth - 1) for value in _assigned(tree, node)}
        return found.pop() if len(found) == 1 else None


def _assigned(tree: Tree, node: ast.expr) -> Iterator[ast.expr]:
    """What the file assigns to a name or attribute."""
    wanted = ast.unparse(node)
    for one in tree.nodes():
        if isinstance(one, ast.Assign) and any(ast.unparse(t) == wanted for t in one.targets):
            yield one.value
