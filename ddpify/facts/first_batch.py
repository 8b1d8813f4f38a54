"""What an object keeps of its first batch: that was a rank's share, and later ones are whole. ::

if self.mask is None:  # and not: or self.mask.size(0) != x.size(0)
    self.mask = torch.ones(x.size(0), 1, 8, 8)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpify.facts.events import Bind
from ddpify.facts.joining import flat_measure
from ddpify.facts.tree import FUNCTIONS, Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Value
from ddpify.source import Site

_SIZED = (Measure.SAMPLES, Measure.PICKED, Measure.COUNT, Measure.MIXED)
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert, ast.BoolOp, ast.UnaryOp)


def first_batches(
    binds: Sequence[Bind], values: Mapping[Site, Value], trees: Mapping[str, Tree]
) -> frozenset[Site]:
    """The statements that keep in ``self`` what has the size of a batch, in the first call only."""
    return frozenset(
        bind.where.statement
        for bind in binds
        if _is_of_batch(bind.value)
        and _attribute(bind)
        and not any(map(_is_made_again, _same(bind, binds)))
        and any(_asks(bind, test, values, binds) for test in _tests(bind, trees))
        and not _is_ordered(bind, trees)
    )


def _is_of_batch(value: Value) -> bool:
    return flat_measure(value) in _SIZED and bool(value.dep(Kind.BATCH))


def _attribute(bind: Bind) -> str:
    """``mask`` of ``self.mask``, "" of anything else."""
    own, _, name = bind.target.partition(".")
    return name if own == next(iter(bind.where.frame.parameters), "") else ""


def _same(bind: Bind, binds: Iterable[Bind]) -> Iterator[Bind]:
    """What binds an attribute of this name; of which object is not asked."""
    name = _attribute(bind)
    return (b for b in binds if b.target.rpartition(".")[2] == name and "." in b.target)


def _is_made_again(bind: Bind) -> bool:
    """``self.mask = None`` in a method that is called, so that the next call makes another."""
    made = bind.where.function is not None and bind.where.function.name == "__init__"
    return not made and bind.value.known and bind.value.const is None


def _tests(bind: Bind, trees: Mapping[str, Tree]) -> Iterator[tuple[Tree, ast.expr]]:
    """The conditions under which it is bound, in its function and in those that call it."""
    for guard in bind.where.guards:
        node = trees[guard.site.path].expression(guard.site)
        if node is not None:
            yield trees[guard.site.path], node
    for site in (bind.where.statement, *bind.where.stack):
        tree = trees[site.path]
        for above in tree.ancestors(tree.statement(site) or tree.module):
            if isinstance(above, FUNCTIONS):
                break
            if isinstance(above, ast.If):
                yield tree, above.test


def _asks(
    bind: Bind,
    test: tuple[Tree, ast.expr],
    values: Mapping[Site, Value],
    binds: Iterable[Bind],
) -> bool:
    """Whether a condition asks if there is one already, or for what is said beside it."""
    tree, node = test
    parts = (part for part in ast.walk(node) if isinstance(part, ast.expr))
    if any(_is_of_batch(values.get(tree.site(part), NOTHING)) for part in parts):
        return False
    said = {name for part in _meant(tree, node) for name in _names(part)}
    beside = (b for b in binds if b.where.frame is bind.where.frame)
    return not said.isdisjoint({_attribute(bind), *map(_attribute, beside)} - {""})


def _meant(tree: Tree, node: ast.expr) -> Iterator[ast.expr]:
    """A condition, and what the names in it were given in its function."""
    yield node
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    for one in tree.nodes(tree.function(node)):
        if isinstance(one, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id in names for t in one.targets
        ):
            yield one.value


def _is_ordered(bind: Bind, trees: Mapping[str, Tree]) -> bool:
    """Whether a decision is made of which is more, so that it is one number: the best so far."""
    if flat_measure(bind.value) is not Measure.MIXED:
        return False
    reads = (
        (tree, node) for tree in trees.values() for node in tree.loads.get(_attribute(bind), ())
    )
    return any(_decides(tree, node) for tree, node in reads)


def _decides(tree: Tree, node: ast.expr) -> bool:
    """``if score > self.best``, or ``better = score > self.best`` and ``if better``."""
    compare = tree.parent(node)
    if not isinstance(compare, ast.Compare) or not isinstance(compare.ops[0], _ORDERS):
        return False
    above = tree.parent(compare)
    if not isinstance(above, ast.Assign):
        return isinstance(above, _TESTS)
    names = {t.id for t in above.targets if isinstance(t, ast.Name)}
    uses = (
        n for n in tree.nodes(tree.function(above)) if isinstance(n, ast.Name) and n.id in names
    )
    return any(isinstance(tree.parent(use), _TESTS) for use in uses)


def _names(node: ast.expr) -> Iterator[str]:
    """The attributes that are read, and those that ``hasattr(self, "mask")`` asks for."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
