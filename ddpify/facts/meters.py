"""Average meters: objects that keep a sum over samples, their count, and the quotient."""

from __future__ import annotations

import ast

from ddpify.facts.locality import is_local
from ddpify.facts.measures import ADDITIVE
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure, Thing, Value, one


def held(m: Machine, f: Frame) -> tuple[str, ...]:
    """Names of meters that hold this rank's sums now, and nothing else."""
    return tuple(
        name
        for name, value in f.env.items()
        if value.things
        and all(t.kind is Kind.INSTANCE and _is_meter(m, f, t) for t in value.things)
    )


def reduced_after(
    m: Machine, f: Frame, tree: Tree, node: ast.stmt, done: set[str]
) -> tuple[str, ...]:
    """Names of meters that hold this rank's sums, read after a loop; they count as reduced."""
    found = []
    for name, value in list(f.env.items()):
        meters = [t for t in value.of(Kind.INSTANCE) if _is_meter(m, f, t)]
        if not meters or name in done or len(meters) != len(value.things):
            continue
        if tree.read_after(node, name) or _read_as_owner(tree, node, name):
            found.append(name)
        for thing in meters:
            for attribute in thing.attrs.keys() & {"sum", "count", "avg"}:
                thing.attrs[attribute] = thing.attrs[attribute].reduced()
    return tuple(found)


def _read_as_owner(tree: Tree, node: ast.stmt, name: str) -> bool:
    return tree.read_after(node, f"{name}.avg") or tree.read_after(node, f"{name}.sum")


def _is_meter(m: Machine, f: Frame, thing: Thing) -> bool:
    """An object that keeps a sum over samples, their count, and the quotient, perhaps computed."""
    attrs = thing.attrs
    if not {"sum", "count"} <= attrs.keys() or not is_local(m, attrs["sum"]):
        return False
    if attrs["sum"].measure not in ADDITIVE or attrs["count"].measure is not Measure.COUNT:
        return False  # a sum of numbers of the whole batch, each times this rank's samples, is one
    mean = attrs["avg"] if "avg" in attrs else _property(m, f, thing, "avg")
    return mean is not None and mean.measure is Measure.MEAN


def _property(m: Machine, f: Frame, thing: Thing, name: str) -> Value | None:
    """What a property gives now; None where the class has none of this name."""
    found = thing.ref.lookup(name) if isinstance(thing.ref, ClassInfo) else None
    infos = [t.ref for t in found.things] if found is not None else []
    if len(infos) != 1 or not isinstance(infos[0], FunctionInfo):
        return None
    if not infos[0].decorated_with("builtins.property"):
        return None
    return m.enter(f, infos[0], (one(thing),), {}, thing.born)
