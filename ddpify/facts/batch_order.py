"""Whether what is computed of a batch depends on the order of its samples.

`whole_batch` puts the ranks' rows together rank by rank. Where a loader shuffles, one order is as
good as another; else neighbours, halves and running sums would be of other samples. ::

    better, worse = scores[::2], scores[1::2]
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.facts import roles
from ddpify.facts.details import call_that_made
from ddpify.facts.events import Call
from ddpify.facts.joining import computed
from ddpify.facts.measures import ENTRIES
from ddpify.facts.protocol import Machine
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, UNKNOWN_AXIS, Kind, Value

ALONG_FIRST = frozenset(
    "flip roll chunk split narrow cumsum cumprod cummax cummin diff select".split()
)
SHAPES = frozenset({"view", "reshape"})


def counts(m: Machine, call: Call, given: Iterable[Value]) -> bool:
    """Whether a call of the project's computes by the order of its rows, which loaders tell."""
    loaders = {loader for value in given for loader in computed(value).loaders()}
    made = [call_that_made(loader) for loader in loaders]
    shuffles = (one.arg(2, "shuffle") if one is not None else None for one in made)
    if made and all(each is not None and each.const is True for each in shuffles):
        return False
    return any(_is_ordered(m, tree, node) for tree, node in _text(m, call))


def _text(m: Machine, call: Call) -> Iterator[tuple[Tree, ast.AST]]:
    """Where the call stands, and the functions that it leads to."""
    tree, node = m.tree(call.site.path), m.tree(call.site.path).expression(call.site)
    yield from ((tree, each) for each in tree.nodes(tree.function(node) if node else None))
    inner = (
        c for c in roles.calls_of(m) if c.way[: len(call.way)] == call.way and c.where.function
    )
    for target in {c.where.function for c in inner if len(c.way) > len(call.way)}:
        tree = m.tree(target.site.path) if target else tree
        yield from ((tree, each) for each in tree.nodes(target.node if target else None))


def _is_ordered(m: Machine, tree: Tree, node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        first = node.slice.elts[0] if _is_several(node.slice) else node.slice  # type: ignore[attr-defined]
        bounds = isinstance(first, ast.Slice) and (first.lower or first.upper or first.step)
        single = isinstance(first, ast.Constant) and type(first.value) is int
        single = single and not _gives_several(node.value)
        return bool(bounds or single) and _has_samples(m, tree, node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    name, owner = node.func.attr, node.func.value
    subject = owner if m.values.get(tree.site(owner), NOTHING).measure in ENTRIES else None
    subject = subject or (node.args[0] if node.args else None)
    if subject is None or not _has_samples(m, tree, subject):
        return False
    if name in SHAPES:  # `view(4, -1)`
        return m.values.get(tree.site(node), NOTHING).axis == UNKNOWN_AXIS
    return name in ALONG_FIRST and not _is_along_another(node, 1 if subject in node.args else 0)


def _gives_several(node: ast.expr) -> bool:
    """``x.chunk(2, 1)[0]``, ``x.max(1)[0]``: one of several tensors."""
    name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
    return name in ("chunk", "split", "max", "min", "sort", "topk")


def _is_several(index: ast.expr) -> bool:
    return isinstance(index, ast.Tuple) and bool(index.elts)


def _has_samples(m: Machine, tree: Tree, node: ast.expr) -> bool:
    value = m.values.get(tree.site(node), NOTHING)
    whole = not value.axis and value.blocks < 2 and not value.things
    return value.measure in ENTRIES and whole and bool(value.dep(Kind.FORWARD))


def _is_along_another(node: ast.Call, given: int) -> bool:
    """``x.flip(1)``, ``x.chunk(2, dim=-1)``: the last number, where one says an axis."""
    named = [k.value for k in node.keywords if k.arg in ("dim", "dims", "axis")]
    own = node.args[given:]
    numbers = named or own[-1:]
    alone = isinstance(node.func, ast.Attribute) and node.func.attr in ("chunk", "split", "roll")
    if not numbers or (alone and not named and len(own) < 2):
        return False
    found = ast.unparse(numbers[0]).strip("[](),")
    return found not in ("0", "")
