"""Meters that are shown by their texts, one by one or as many as a list or a dict holds. ::

print("\\t".join(str(meter) for meter in self.meters))
print(", ".join(f"{name}: {meter.avg}" for name, meter in meters.items()))
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from ddpify.facts.joining import parts_of
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.source import Site

COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
SAID = (ast.Name, ast.Attribute, ast.Subscript)
METER = frozenset({"sum", "count"})


def shown(
    tree: Tree, node: ast.expr, values: Mapping[Site, Value], meters: Collection[Thing]
) -> Iterator[ast.expr]:
    """What stands for such a meter in an expression, or for a list or dict of them, as a whole.

    Not ``losses.avg``, which is a number.
    """
    own = bound(node)
    for said in ast.walk(node):
        if not isinstance(said, SAID) or not isinstance(said.ctx, ast.Load) or _of(said) in own:
            continue
        if are_meters(values.get(tree.site(said), NOTHING), meters) and _is_whole(tree, said):
            yield said


def are_meters(value: Value, meters: Collection[Thing]) -> bool:
    """Whether a value is a meter, or holds nothing else, and of some it is known what they keep."""
    things = list(_objects(value))
    alike = all(t is not None and t.attrs.keys() >= METER for t in things)
    return bool(things) and alike and any(thing in meters for thing in things)


def _objects(value: Value, depth: int = 2) -> Iterator[Thing | None]:
    """The objects that a value may be or hold; None for what is something else."""
    for thing in value.things:
        if thing.kind is Kind.INSTANCE:
            yield thing
        elif thing.kind in CONTAINERS and depth and parts_of(thing):
            for part in parts_of(thing):
                yield from _objects(part, depth - 1)
        else:
            yield None
    if not value.things:
        yield None


def _is_whole(tree: Tree, node: ast.expr) -> bool:
    above = tree.parent(node)
    if isinstance(above, ast.Attribute):
        return above.attr in ("values", "items") and isinstance(tree.parent(above), ast.Call)
    return not (isinstance(above, ast.Subscript) and above.value is node)


def is_of_meters(
    tree: Tree, node: ast.expr, values: Mapping[Site, Value], meters: Collection[Thing]
) -> bool:
    """Whether a comprehension shows numbers of such meters alone: ``[str(m) for m in meters]``."""
    if not isinstance(node, COMPREHENSIONS) or len(node.generators) != 1:
        return False
    over = node.generators[0].iter
    wholes = list(shown(tree, over, values, meters))
    own = bound(node)
    inside = {id(part) for whole in wholes for part in ast.walk(whole)}
    for part in ast.walk(node):
        value = values.get(tree.site(part)) if isinstance(part, ast.Name) else None
        if value is None or id(part) in inside or _of(part) in own:
            continue
        if value.measure is not Measure.UNIFORM or are_meters(value, meters):
            return False
    return bool(wholes)


def _of(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def bound(node: ast.expr) -> frozenset[str]:
    """The names that the loops of comprehensions in an expression bind."""
    loops = (one.generators for one in ast.walk(node) if isinstance(one, COMPREHENSIONS))
    targets = (part for all_ in loops for loop in all_ for part in ast.walk(loop.target))
    return frozenset(part.id for part in targets if isinstance(part, ast.Name))
