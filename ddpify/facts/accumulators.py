"""What a loop over a sharded loader leaves behind: sums, means and meters of one rank only.

After each loop the values count as reduced, as they will be in the target program; the
record of the loop's end says which reductions that takes.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpify.facts.events import Bind, LoopEnd
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure, Thing, Value

if TYPE_CHECKING:
    from ddpify.facts.machine import Machine

REDUCERS = frozenset({"reduce_sum", "reduce_mean", "reduce_meter", "broadcast"})
SUMMERS = frozenset({"reduce_sum", "reduce_meter"})
SUMS = (Measure.SUM, Measure.COUNT)


def loaders_in(value: Value, depth: int = 4) -> tuple[Thing, ...]:
    """The loaders a loop goes over, through enumerate, zip, tqdm and iter."""
    found: list[Thing] = list(value.of(Kind.LOADER))
    for thing in value.things if depth else ():
        if thing.kind is Kind.PROGRESS and thing.inner is not None:
            found.extend(loaders_in(thing.inner, depth - 1))
        for over in thing.detail.get("over", ()):
            found.extend(loaders_in(over, depth - 1))
    return tuple(dict.fromkeys(found))


def is_local(m: Machine, value: Value) -> bool:
    """Whether a value is computed from this rank's share of the samples only."""
    if value.measure is Measure.UNIFORM:
        return False
    for batch in value.dep(Kind.BATCH):
        if batch.inner is not None and any(t.born in m.sharded for t in batch.inner.things):
            return True
    return False


def close_loop(m: Machine, f: Frame, loop: Loop) -> None:
    """Record what the loop leaves behind and count it as reduced."""
    if not any(t.born in m.sharded for t in loaders_in(loop.over)):
        return
    tree = m.tree(f.module.source.path)
    node = tree.statement(loop.site)
    if node is None:
        return
    done = _already_reduced(f, tree, node, REDUCERS)
    reduced = _already_reduced(f, tree, node, SUMMERS)
    sums, means, others = _names(m, f, loop, tree, node, done)
    meters = _meters(m, f, tree, node, done)
    f.statement = loop.site
    end = LoopEnd(loop, m.where(f), sums, means, meters, others, tuple(sorted(reduced)))
    known = m.ends.get((loop.site, f.stack))
    m.ends[loop.site, f.stack] = end if known is None else _again(known, end)
    for name in (*sums, *means):
        _set(f, name)


def _again(first: LoopEnd, then: LoopEnd) -> LoopEnd:
    """The loop in a later pass of an outer one: a sum that goes on there is not to be summed
    over the ranks each time."""
    others = tuple(dict.fromkeys((*first.others, *then.others)))
    return replace(
        then,
        sums=tuple(n for n in dict.fromkeys((*first.sums, *then.sums)) if n not in others),
        means=tuple(n for n in dict.fromkeys((*first.means, *then.means)) if n not in others),
        others=others,
    )


def _names(
    m: Machine, f: Frame, loop: Loop, tree: Tree, node: ast.stmt, done: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    sums, means, others = [], [], []
    for name in _bound_in(m, f, loop):
        value = _get(f, name)
        if value is None or name in done or not is_local(m, value):
            continue
        if not tree.read_after(node, name):
            continue
        if value.measure in SUMS and accumulates(node, name):
            sums.append(name)
        elif value.measure is Measure.MEAN and accumulates(node, name):
            means.append(name)
        else:
            others.append(name)
    return tuple(sums), tuple(means), tuple(others)


def _bound_in(m: Machine, f: Frame, loop: Loop) -> list[str]:
    """Names and attributes of this frame that the loop's body binds."""
    found = [
        event.target
        for event in m.events
        if isinstance(event, Bind)
        and event.where.frame.stack == f.stack
        and event.where.function is f.function
        and event.site.within(loop.site)
    ]
    return list(dict.fromkeys(found))


def accumulates(node: ast.stmt, name: str) -> bool:
    """Whether the loop adds to ``name`` (rather than binding it anew for each batch)."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.AugAssign) and ast.unparse(inner.target) == name:
            return True
        if isinstance(inner, ast.Assign) and any(ast.unparse(t) == name for t in inner.targets):
            reads = {
                ast.unparse(n)
                for n in ast.walk(inner.value)
                if isinstance(n, (ast.Name, ast.Attribute))
            }
            if name in reads:
                return True
    return False


def _get(f: Frame, name: str) -> Value | None:
    if "." not in name:
        return f.lookup(name)
    owner, _, attribute = name.rpartition(".")
    base = f.lookup(owner) if "." not in owner else None
    return base.things[0].attrs.get(attribute) if base is not None and base.things else None


def _set(f: Frame, name: str) -> None:
    value = _get(f, name)
    if value is None:
        return
    reduced = value.reduced()
    if "." not in name:
        f.bind(name, reduced)
        return
    owner, _, attribute = name.rpartition(".")
    base = f.lookup(owner)
    if base is not None and base.things:
        base.things[0].attrs[attribute] = reduced


def _meters(m: Machine, f: Frame, tree: Tree, node: ast.stmt, done: set[str]) -> tuple[str, ...]:
    """Names of meter objects that hold this rank's sums, read after the loop."""
    found = []
    for name, value in list(f.env.items()):
        meters = [t for t in value.of(Kind.INSTANCE) if _is_meter(m, t)]
        if not meters or name in done or len(meters) != len(value.things):
            continue
        if tree.read_after(node, name) or _read_as_owner(tree, node, name):
            found.append(name)
        for thing in meters:
            for attribute in ("sum", "count", "avg"):
                thing.attrs[attribute] = thing.attrs[attribute].reduced()
    return tuple(found)


def _read_as_owner(tree: Tree, node: ast.stmt, name: str) -> bool:
    return tree.read_after(node, f"{name}.avg") or tree.read_after(node, f"{name}.sum")


def _is_meter(m: Machine, thing: Thing) -> bool:
    """An object that keeps a sum over samples, their count, and the quotient."""
    shape = {
        name: thing.attrs[name].measure for name in ("sum", "count", "avg") if name in thing.attrs
    }
    if shape != {"sum": Measure.SUM, "count": Measure.COUNT, "avg": Measure.MEAN}:
        return False
    return is_local(m, thing.attrs["sum"])


def _already_reduced(f: Frame, tree: Tree, node: ast.stmt, reducers: frozenset[str]) -> set[str]:
    """Names that statements after the loop reduce before anything reads them."""
    names: set[str] = set()
    read: set[str] = set()
    for statement in tree.following(node):
        call = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
        if isinstance(call, ast.Call) and _is_one_of(f, call.func, reducers):
            names |= {ast.unparse(part) for a in call.args for part in _parts(a)} - read
        else:
            read |= {ast.unparse(n) for n in ast.walk(statement) if isinstance(n, ast.Name)}
            read |= {ast.unparse(n) for n in ast.walk(statement) if isinstance(n, ast.Attribute)}
    return names


def _parts(argument: ast.expr) -> list[ast.expr]:
    return argument.elts if isinstance(argument, ast.Tuple) else [argument]


def _is_one_of(f: Frame, func: ast.expr, names: frozenset[str]) -> bool:
    value = f.lookup(func.id) if isinstance(func, ast.Name) else None
    things = value.things if value is not None else ()
    return any(t.name in {f"ddpify.runtime.{name}" for name in names} for t in things)
