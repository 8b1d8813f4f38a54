"""Losses of which it is not known that they are means: what the ranks train is their mean.

DDP averages the gradients of the ranks' losses, whatever these are, so that the number that belongs
to the training is the mean of the ranks' numbers, of the loss and of each of its addends. ::

    loss = net_loss(x) + 0.1 * other(x)     # not followed: DDP401 says so
    loss.backward(); print(loss.item())     # the mean of the ranks' losses
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts import roles
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, FunctionInfo
from ddpify.facts.tree import FUNCTIONS, Tree, is_name
from ddpify.facts.values import NOTHING, Kind, Measure, Value
from ddpify.source import Site

LINEAR = (ast.Add, ast.Sub)


def addends(m: Machine) -> frozenset[Site]:
    """The expressions that are, or add to, a loss whose measure is not known."""
    found = _Addends(m)
    for call in roles.backwards(roles.calls_of(m)):
        loss, site = call.receiver, call.receiver_site
        followed = loss is None or loss.measure is not Measure.MIXED
        if not followed and site is not None:
            found.visit(m.tree(site.path), m.tree(site.path).expression(site))
    return frozenset(found.sites)


def sums(m: Machine, trained: frozenset[Site]) -> frozenset[Site]:
    """The sums over a batch that such losses add to means, in each pass of a training loop. ::

    loss = mse + 0.1 * kl.sum()     # N times the sum of a rank: their mean is that of all
    """
    found: set[Site] = set()
    for call in roles.backwards(roles.calls_of(m)):
        loss, site, where = call.receiver, call.receiver_site, call.where
        mixed = loss is not None and loss.measure is Measure.MIXED and not loss.dep(Kind.WORLD)
        if not mixed or site is None or where.loop is None:
            continue
        here = where.loop.function is where.function
        region = where.loop.site if here or where.function is None else where.function.site
        terms = _Sums(m, region, trained)
        terms.visit(m.tree(site.path), m.tree(site.path).expression(site))
        found |= terms.sums
    return frozenset(found)


def averaged(m: Machine, f: Frame, value: Value, site: Site) -> Value:
    """The value of an addend, as DDP averages it: only where it trains."""
    if site in m.target.summed:
        return value.but(measure=Measure.MEAN)
    unknown = site in m.target.averaged and value.measure is Measure.MIXED
    if not unknown or f.no_grad or not _trains(value, m.target.trained):
        return value
    made = m.make(Kind.AVERAGED, f, site)
    return value.but(deps=value.deps | {made}, measure=Measure.MEAN)


def _trains(value: Value, trained: frozenset[Site]) -> bool:
    batches = [batch for batch in value.dep(Kind.BATCH) if batch.inner is not None]
    return bool(batches) and all(loader.born in trained for loader in value.loaders())


class _Addends:
    """The way back from a loss, through sums, names and functions of the project."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.sites: set[Site] = set()
        self._seen: set[object] = set()
        self._calls: dict[Site, set[FunctionInfo | None]] = {}
        for call in roles.calls_of(m):
            self._calls.setdefault(call.site, set()).add(call.target)

    def visit(self, tree: Tree, node: ast.expr | None, index: int | None = None) -> None:
        """Note what ``node``, or the entry ``index`` of it, adds up; it is a loss, or a part."""
        if node is None or (node, index) in self._seen:
            return
        self._seen.add((node, index))
        if isinstance(node, ast.Tuple) and index is not None:
            self.visit(tree, node.elts[index] if index < len(node.elts) else None)
        elif isinstance(node, ast.BinOp):
            self._operands(tree, node)
        elif isinstance(node, ast.Name):
            self._name(tree, node, index)
        elif isinstance(node, ast.Call):
            self._call(tree, node, index)
        elif index is None:
            self.sites.add(tree.site(node))

    def _operands(self, tree: Tree, node: ast.BinOp) -> None:
        sides = [node.left, node.right]
        fixed = [self._value(tree, side).measure is Measure.UNIFORM for side in sides]
        if isinstance(node.op, (ast.Mult, ast.Div)) and fixed[1]:
            self.visit(tree, node.left)
        elif isinstance(node.op, ast.Mult) and fixed[0]:
            self.visit(tree, node.right)
        elif isinstance(node.op, LINEAR):
            for side in sides:
                self.visit(tree, side)
        else:
            self.sites.add(tree.site(node))

    def _name(self, tree: Tree, node: ast.Name, index: int | None) -> None:
        scope = tree.function(node)
        if index is None:
            names = (n for n in tree.nodes(scope) if isinstance(n, ast.Name) and n.id == node.id)
            self.sites |= {tree.site(n) for n in names if isinstance(n.ctx, ast.Load)}
        for value, place in _bound(tree, scope, node.id):
            self.visit(tree, value, index if place is None else place)

    def _call(self, tree: Tree, node: ast.Call, index: int | None) -> None:
        site = tree.site(node)
        targets = self._calls.get(site, set())
        if self._scales(tree, node):
            self.visit(tree, node.args[0])
        elif len(targets) == 1 and (target := next(iter(targets))) is not None:
            if index is None:
                self.sites.add(site)
            inner = self.m.tree(target.site.path)
            for returned in _returned(target):
                self.visit(inner, returned, index)
        elif index is None:
            self.sites.add(site)

    def _scales(self, tree: Tree, node: ast.Call) -> bool:
        """``scaler.scale(loss)``."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        return owner is not None and bool(node.args and self._value(tree, owner).of(Kind.SCALER))

    def _value(self, tree: Tree, node: ast.expr) -> Value:
        return self.m.values.get(tree.site(node), NOTHING)


class _Sums(_Addends):
    """The sums on that way, as far as it stays in one pass of the loop, or in one function."""

    def __init__(self, m: Machine, region: Site, trained: frozenset[Site]) -> None:
        super().__init__(m)
        self._region, self._trained = region, trained
        self.sums: set[Site] = set()

    def visit(self, tree: Tree, node: ast.expr | None, index: int | None = None) -> None:
        if node is None or not tree.site(node).within(self._region):
            return
        value = self._value(tree, node)
        if value.measure is Measure.MIXED or index is not None:
            super().visit(tree, node, index)
        elif value.measure is Measure.SUM and _trains(value, self._trained):
            self.sums.add(tree.site(node))


def _bound(tree: Tree, scope: ast.AST, name: str) -> Iterator[tuple[ast.expr, int | None]]:
    """What a name is given or added in a function; of an unpacked value, the place in it."""
    for node in tree.nodes(scope):
        if isinstance(node, ast.AugAssign):
            if isinstance(node.op, LINEAR) and is_name(node.target, name):
                yield node.value, None
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if is_name(target, name):
                    yield node.value, None
                entries = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
                places = (i for i, one in enumerate(entries) if is_name(one, name))
                yield from ((node.value, place) for place in places)


def _returned(function: FunctionInfo) -> Iterable[ast.expr]:
    """What a function returns."""
    todo: list[ast.AST] = [function.node]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        inner = ast.iter_child_nodes(node)
        todo += [n for n in inner if not isinstance(n, (*FUNCTIONS, ast.ClassDef))]
