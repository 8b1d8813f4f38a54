"""Average meters: objects that keep a sum over samples, their count, and the quotient."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ddpify.facts import joining
from ddpify.facts.details import is_of_singles
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.locality import is_local
from ddpify.facts.measures import ADDITIVE
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame
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


def keep(m: Machine, f: Frame) -> frozenset[Thing]:
    """The meters with this rank's sums, whoever knows them."""
    return frozenset(thing for thing in m.made(Kind.INSTANCE) if _is_meter(m, f, thing))


def reduced_after(
    m: Machine, f: Frame, tree: Tree, node: ast.stmt, done: set[str]
) -> tuple[str, ...]:
    """Names of meters that hold this rank's sums, read after a loop; they count as reduced."""
    found: list[str] = []
    names: dict[str, list[Thing]] = {}
    # A list or a dict of meters comes after those that have names of their own.
    for name, value in sorted(f.env.items(), key=lambda pair: bool(pair[1].of(*CONTAINERS))):
        held = [t for t in joining.held(value, Kind.INSTANCE) if _is_meter(m, f, t)]
        if held and _holds_only(value, held):
            names[name] = held
    done_with = [thing for name in names.keys() & done for thing in names[name]]
    for name, held in names.items():
        alone = name not in done and not any(thing in done_with for thing in held)
        if alone and (tree.read_after(node, name) or _read_as_owner(tree, node, name)):
            found.append(name)
            done_with += held
    for thing in (thing for held in names.values() for thing in held):
        for attribute in thing.attrs.keys() & {"sum", "count", "avg"}:
            thing.attrs[attribute] = thing.attrs[attribute].reduced()
    return tuple(found)


def _holds_only(value: Value, meters: Collection[Thing]) -> bool:
    """Whether it is one of these objects, or a list or a dict of nothing else."""
    return bool(value.things) and all(
        thing in meters
        or (
            thing.kind in CONTAINERS
            and bool(parts := joining.parts_of(thing))
            and all(_holds_only(part, meters) for part in parts)
        )
        for thing in value.things
    )


def _read_as_owner(tree: Tree, node: ast.stmt, name: str) -> bool:
    return tree.read_after(node, f"{name}.avg") or tree.read_after(node, f"{name}.sum")


def _is_meter(m: Machine, f: Frame, thing: Thing) -> bool:
    """An object that keeps a sum over samples, their count, and the quotient, perhaps computed."""
    attrs = thing.attrs
    if not {"sum", "count"} <= attrs.keys() or not is_local(m, attrs["sum"]):
        return False
    mean = attrs["avg"] if "avg" in attrs else _property(m, f, thing, "avg")
    if mean is None or attrs["sum"].measure not in ADDITIVE:
        return False
    if is_of_singles(attrs["sum"]):  # whatever was added for each of them
        return attrs["count"].measure in ADDITIVE and mean.measure in (Measure.MEAN, Measure.RATIO)
    # a sum of numbers of the whole batch, each times this rank's samples, is one
    return attrs["count"].measure is Measure.COUNT and mean.measure is Measure.MEAN


def _property(m: Machine, f: Frame, thing: Thing, name: str) -> Value | None:
    """What a property gives now; None where the class has none of this name."""
    info = thing.ref.method(name) if isinstance(thing.ref, ClassInfo) else None
    if info is None or not info.decorated_with("builtins.property"):
        return None
    return m.enter(f, info, (one(thing),), {}, thing.born)
