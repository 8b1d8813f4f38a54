"""Data that hold the samples of all batches side by side, of which each pass takes the next part.

``batch(train, i)`` slices ``source[i : i + length]`` and flattens the targets: what it gives has
no axis of samples any more, but ``train`` has. Each rank keeps its columns where they are made::

    train = own_share(batchify(corpus, batch_size), dim=1)
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ddpify.facts import roles
from ddpify.facts.bodies import CutBody, merges_axes, stored
from ddpify.facts.places import KEEPS, MERGES
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import FUNCTIONS, Tree


@dataclass(frozen=True)
class Columns:
    """The data of a loop, whose samples lie along ``axis``; ``given`` goes into the model."""

    m: Machine
    tree: Tree
    axis: int
    given: Collection[str]

    def made(self, split: CutBody, names: Collection[str]) -> ast.expr | None:
        """The expression that makes the data of which a pass takes these tensors, if it is one."""
        takes = [statement for statement in split.made_by if stored([statement]) & set(names)]
        if len(takes) != 1 or not isinstance(takes[0], ast.Assign) or len(takes[0].targets) != 1:
            return None
        target, call = takes[0].targets[0], takes[0].value
        made = target.elts if isinstance(target, ast.Tuple) else [target]
        if not isinstance(call, ast.Call) or call.keywords:
            return None
        info = self._function(call)
        if info is None or any(not isinstance(one, ast.Name) for one in (*made, *call.args)):
            return None
        straight = [isinstance(one, ast.Name) and one.id in self.given for one in made]
        for argument, parameter in zip(call.args, info.node.args.args, strict=False):
            if isinstance(argument, ast.Name) and self._takes(info, parameter.arg, straight):
                return self._source(argument)
        return None

    def _function(self, call: ast.Call) -> FunctionInfo | None:
        site = self.tree.site(call)
        found = {c.target for c in roles.calls_of(self.m) if c.site == site}
        info = found.pop() if len(found) == 1 else None
        return info if info is not None and not isinstance(info.node, ast.Lambda) else None

    # -- the function

    def _takes(self, info: FunctionInfo, parameter: str, straight: list[bool]) -> bool:
        """Whether a function returns parts of what it is given, for all samples alike."""
        tree = self.m.tree(info.module.source.path)
        nodes = tree.nodes(info.node)
        names = [n for n in nodes if isinstance(n, ast.Name)]
        uses = [n for n in names if n.id == parameter]
        if not uses or not all(self._leaves_axis(tree, use) for use in uses):
            return False
        returned = [n.value for n in nodes if isinstance(n, ast.Return)]
        if len(returned) != 1 or returned[0] is None:
            return False
        value = returned[0]
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        pairs = zip(parts, straight, strict=False)
        return len(parts) == len(straight) and all(
            self._is_part(info, one, parameter, whole) for one, whole in pairs
        )

    def _is_part(self, info: FunctionInfo, value: ast.expr, parameter: str, whole: bool) -> bool:
        """Whether a value is a part of the data; flattened only where it need not be ``whole``."""
        seen: set[str] = set()
        while not isinstance(value, ast.Subscript):
            if isinstance(value, ast.Name):
                made = [n for n in ast.walk(info.node) if _binds(n, value.id)]
                if value.id in seen or len(made) != 1 or not isinstance(made[0], ast.Assign):
                    return False
                seen.add(value.id)
                value = made[0].value
                continue
            method = value.func if isinstance(value, ast.Call) else None
            if not isinstance(method, ast.Attribute):
                return False
            merges = method.attr in MERGES and merges_axes(ast.Expression(value))
            if method.attr not in KEEPS and not (merges and not whole):
                return False
            value = method.value
        return isinstance(value.value, ast.Name) and value.value.id == parameter

    # -- the data

    def _source(self, argument: ast.Name) -> ast.expr | None:
        """Where the data are made, if nothing else reads them along the axis."""
        own = self.tree.function(argument)
        scope = own if argument.id in self.tree.bound(own) else self.tree.module
        names = [n for n in self._of_scope(scope, argument.id) if n is not argument]
        stores = [n for n in names if not isinstance(n.ctx, ast.Load)]
        loads = [n for n in names if isinstance(n.ctx, ast.Load)]
        made = self.tree.parent(stores[0]) if len(stores) == 1 else None
        if not isinstance(made, ast.Assign) or made.targets != stores:
            return None
        at_once = isinstance(self.tree.parent(made), (ast.Module, ast.FunctionDef))
        if not at_once or not all(self._leaves_axis(self.tree, one) for one in loads):
            return None
        return made.value

    def _of_scope(self, scope: ast.AST, name: str) -> Iterator[ast.Name]:
        """All that a name stands for in a scope and in the functions that see it."""
        for node in self.tree.nodes(scope):
            if isinstance(node, ast.Name) and node.id == name:
                within = self.tree.function(node)
                while within is not scope and name not in self.tree.bound(within):
                    within = self.tree.function(within)
                if within is scope:
                    yield node

    def _leaves_axis(self, tree: Tree, use: ast.Name) -> bool:
        """``len(x)``, ``x.size(0)``, ``x[i : i + n]``: the samples are not touched."""
        above = tree.parent(use)
        if isinstance(above, ast.Subscript) and above.value is use:
            return self._slices_others(above.slice)
        if isinstance(above, ast.Call) and isinstance(above.func, ast.Name):
            return above.func.id == "len" and self.axis > 0
        if isinstance(above, ast.Attribute) and isinstance(above.ctx, ast.Load):
            around = tree.parent(above)
            if above.attr == "size" and isinstance(around, ast.Call) and len(around.args) == 1:
                return self._is_other(around.args[0])
            if above.attr == "shape" and isinstance(around, ast.Subscript):
                return self._is_other(around.slice)
        return False

    def _is_other(self, node: ast.expr) -> bool:
        number = node.value if isinstance(node, ast.Constant) else None
        return isinstance(number, int) and number >= 0 and number != self.axis

    def _slices_others(self, index: ast.expr) -> bool:
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        if not all(isinstance(part, ast.Slice) for part in parts):
            return False
        own = parts[self.axis] if len(parts) > self.axis else ast.Slice()
        return isinstance(own, ast.Slice) and not (own.lower or own.upper or own.step)


def _binds(node: ast.AST, name: str) -> bool:
    """Whether this statement binds a name, and not only one of a block in it."""
    whole = (ast.For, ast.While, ast.If, ast.With, ast.Try, *FUNCTIONS)
    return isinstance(node, ast.stmt) and not isinstance(node, whole) and name in stored([node])
