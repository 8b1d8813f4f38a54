"""What a loop over a sharded loader leaves behind: sums, means and meters of one rank only.

After each loop the values count as reduced, as they will be in the target program; the
record of the loop's end says which reductions that takes.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpify.facts import (
    dealing,
    entry_sums,
    growth,
    later,
    meters,
    owners,
    trackers,
)
from ddpify.facts.events import LoopEnd
from ddpify.facts.locality import is_local, is_shared_out, loaders_in
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.tree import Tree, names_in, written
from ddpify.facts.values import NOTHING, Kind, Measure

GATHERERS = frozenset({"gather_samples", "gather_batches"})
SUMMERS = frozenset({"reduce_sum", "reduce_meter", "reduce_entries"}) | GATHERERS
REDUCERS = frozenset({"reduce_mean", "broadcast"}) | SUMMERS
SUMS = (Measure.SUM, Measure.COUNT)
MEANS = (Measure.MEAN,)
OTHERS = tuple(m for m in Measure if m not in (*SUMS, *MEANS))
Left = list[tuple[str, Measure]]


def close_loop(m: Machine, f: Frame, loop: Loop) -> None:
    """Record what the loop leaves behind and count it as reduced."""
    if not any(is_shared_out(m, t) for t in loaders_in(loop.over)):
        return
    tree = m.tree(f.module.source.path)
    node = tree.statement(loop.site)
    if node is None:
        return
    done = already_reduced(f, tree, node, REDUCERS)
    reduced = already_reduced(f, tree, node, SUMMERS)
    left = _names(m, f, loop, tree, node, done)
    held, keep = meters.held(m, f), meters.keep(m, f)
    tracked = trackers.kept(m, m.made(Kind.INSTANCE))
    found = meters.reduced_after(m, f, tree, node, done)
    entries = entry_sums.reduced_after(m, f, loop, tree, node, done)
    owned = owners.changed(m, f, loop)
    left += _owned(m, f, tree, node, [o for o in owned if not _prefixes(o.name) & done])
    if dealing.deals(m, loop):
        left = _over_batches(m, f, loop, node, left, done)
    lists = growth.filled(m, f, loop, node, done)
    f.statement = loop.site
    sums, means = _measured(left, SUMS), _measured(left, MEANS)
    others = (*_measured(left, OTHERS), *lists.others, *entries.others)
    summed = tuple(sorted(reduced))
    end = LoopEnd(
        loop, m.where(f), sums, means, found, others, summed, lists.samples, lists.batches
    )
    end = replace(end, held=held, numbers=lists.numbers, totals=lists.totals, keep=keep)
    end = replace(end, tracked=tracked)
    end = replace(end, entries=entries.dicts, dicts=entries.made)
    end = replace(end, sums=(*sums, *entries.lists))
    _keep(m, f, end, owned)
    for name in (*sums, *means):
        _set(f, name)
    for name in (*lists.numbers, *lists.totals, *done):
        growth.joined(f.value_of(name) or NOTHING)
    for name in (*lists.samples, *lists.batches):
        f.bind(name, growth.gathered(f.value_of(name) or NOTHING, loop.site))


def _over_batches(
    m: Machine, f: Frame, loop: Loop, node: ast.stmt, left: Left, done: set[str]
) -> Left:
    """Where whole batches are dealt: what is added for each of them is a sum, a number of
    batches, too."""
    found = []
    tree = m.tree(loop.site.path)
    known = {name for name, _ in left}
    bound = [
        n
        for n in _bound_in(m, f, loop)
        if n not in known | done and later.read_after(m.trees, f, node, n)
    ]
    for name, measure in (*left, *((name, None) for name in bound)):
        alone = "." in name or not _aliased(f, tree, node, name)
        if measure not in SUMS and alone and dealing.adds(m, f, loop, node, name):
            measure = Measure.SUM
        if measure is not None:
            found.append((name, Measure.MIXED if measure in MEANS else measure))
    return found


def _keep(m: Machine, f: Frame, end: LoopEnd, owned: tuple[owners.Owned, ...]) -> None:
    known = m.ends.get((end.loop.site, f.stack))
    end = end if known is None else _again(known, end)
    combined = {*end.sums, *end.means, *end.reduced}
    keys = frozenset((o.thing, o.attribute) for o in owned if o.name in combined)
    m.ends[end.loop.site, f.stack] = replace(end, owned=keys)


def _measured(left: Left, measures: tuple[Measure, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, measure in left if measure in measures))


def _owned(m: Machine, f: Frame, tree: Tree, node: ast.stmt, owned: list[owners.Owned]) -> Left:
    """What methods add up in objects of this function's."""
    found: Left = []
    for each in owned:
        value = each.thing.attrs.get(each.attribute)
        if value is None or not each.adds or not is_local(m, value):
            continue
        if _read_later(f, tree, node, each):
            half = value.measure in SUMS and owners.is_half(each, owned, OTHERS)
            found.append((each.name, Measure.MIXED if half else value.measure))
    return found


def _read_later(f: Frame, tree: Tree, node: ast.stmt, each: owners.Owned) -> bool:
    """Whether an object is used after the loop, here or by whoever else knows it.

    Not where nothing is, but others of the attributes that it keeps are read.
    """
    owner, name = each.name.rpartition(".")[0], each.name.partition(".")[0]
    if name in f.parameters or name not in f.env:
        return True
    later = [n for n in tree.reads(tree.function(node), owner) if tree.site(node) < tree.site(n)]
    beside = each.thing.attrs.keys() - {each.attribute}
    return tree.read_after(node, owner) and not all(
        tree.attribute_of(n) in beside for n in later if node not in tree.ancestors(n)
    )


def _again(first: LoopEnd, then: LoopEnd) -> LoopEnd:
    """The loop in a later pass of an outer one: a sum that goes on there is not to be summed
    over the ranks each time."""
    others = tuple(dict.fromkeys((*first.others, *then.others)))

    def both(name: str) -> tuple[str, ...]:
        found = dict.fromkeys((*getattr(first, name), *getattr(then, name)))
        return tuple(n for n in found if n not in others)

    return replace(
        then,
        sums=both("sums"),
        means=both("means"),
        samples=both("samples"),
        batches=both("batches"),
        numbers=both("numbers"),
        entries=both("entries"),
        others=others,
        dicts=first.dicts | then.dicts,
        keep=first.keep | then.keep,
        tracked={**first.tracked, **then.tracked},
    )


def _names(m: Machine, f: Frame, loop: Loop, tree: Tree, node: ast.stmt, done: set[str]) -> Left:
    found: Left = []
    for name in _bound_in(m, f, loop):
        value = f.value_of(name)
        if value is None or name in done or not is_local(m, value):
            continue
        adds, aliased = accumulates(tree, node, name), _aliased(f, tree, node, name)
        if later.read_after(m.trees, f, node, name) or (adds and aliased):
            found.append((name, value.measure if adds and not aliased else Measure.MIXED))
    return found


def _aliased(f: Frame, tree: Tree, node: ast.stmt, name: str) -> bool:
    """Whether ``name += …`` may change an array that somebody else reads by another name."""
    if f.parameters.get(name) is not None:
        return True
    for other in tree.nodes(tree.function(node)):
        if isinstance(other, ast.Assign) and isinstance(other.value, (ast.Name, ast.Attribute)):
            before = tree.site(other) < tree.site(node)
            if before and any(written(target) == name for target in other.targets):
                return True
    return False


def _bound_in(m: Machine, f: Frame, loop: Loop) -> list[str]:
    """Names and attributes of this frame that the loop's body binds."""
    found = [e.target for e in m.events.binds_of(f) if e.site.within(loop.site)]
    return list(dict.fromkeys(found))


def accumulates(tree: Tree, node: ast.stmt, name: str) -> bool:
    """Whether the loop adds to ``name`` (rather than binding it anew for each batch)."""
    if isinstance(node, ast.For) and name in _bound_by(node):
        return False
    for inner in tree.nodes(node):
        if isinstance(inner, ast.AugAssign) and name in _added_to(inner.target):
            return True
        called = inner.value if isinstance(inner, ast.Expr) else None
        if isinstance(called, ast.Call) and name in _changed_by(called):
            return True
        if isinstance(inner, ast.Assign) and any(written(t) == name for t in inner.targets):
            reads = {
                ast.unparse(n)
                for n in ast.walk(inner.value)
                if isinstance(n, (ast.Name, ast.Attribute))
            }
            if name in reads:
                return True
    return False


def _bound_by(node: ast.For) -> set[str]:
    """The names that each round of a loop binds first."""
    return names_in(node.target)


def _added_to(target: ast.expr) -> tuple[str, ...]:
    """``matrix`` and ``matrix[i]`` for ``matrix[i] += …``."""
    whole = (written(target.value),) if isinstance(target, ast.Subscript) else ()
    return (written(target), *whole)


def _changed_by(call: ast.Call) -> tuple[str, ...]:
    """``total`` for ``total.add_(…)``, ``total[i].append(…)`` and ``np.add.at(total, …)``."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    grows = isinstance(call.func, ast.Attribute) and call.func.attr in growth.MUTATES
    whole = owner
    while grows and isinstance(whole, ast.Subscript):
        whole = whole.value
    return tuple(ast.unparse(node) for node in (owner, whole, *call.args[:1]))


def _set(f: Frame, name: str) -> None:
    value = f.value_of(name)
    if value is None:
        return
    reduced = value.reduced()
    if "." not in name:
        f.bind(name, reduced)
        return
    owner, _, attribute = name.rpartition(".")
    base = f.value_of(owner)
    if base is not None and base.things:
        base.things[0].attrs[attribute] = reduced


def already_reduced(f: Frame, tree: Tree, node: ast.stmt, reducers: frozenset[str]) -> set[str]:
    """Names that statements after the loop reduce before anything reads them."""
    names: set[str] = set()
    read: set[str] = set()
    for statement in tree.following(node):
        call = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
        if isinstance(call, ast.Call) and _is_one_of(f, call.func, reducers):
            parts = {ast.unparse(part) for a in call.args for part in _parts(a)}
            names |= {p for p in parts if not _prefixes(p) & read}
        else:
            read |= {ast.unparse(n) for n in ast.walk(statement) if isinstance(n, ast.Name)}
            read |= {ast.unparse(n) for n in ast.walk(statement) if isinstance(n, ast.Attribute)}
    return names


def _prefixes(name: str) -> set[str]:
    """``a.b`` is read where ``a`` is."""
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts) + 1)}


def _parts(argument: ast.expr) -> list[ast.expr]:
    """What is given, ``meters`` for ``*meters.values()``."""
    if isinstance(argument, ast.Tuple):
        return argument.elts
    if not isinstance(argument, ast.Starred):
        return [argument]
    inner = argument.value.func if isinstance(argument.value, ast.Call) else argument.value
    return [inner.value if isinstance(inner, ast.Attribute) and inner.attr == "values" else inner]


def _is_one_of(f: Frame, func: ast.expr, names: frozenset[str]) -> bool:
    value = f.lookup(func.id) if isinstance(func, ast.Name) else None
    things = value.things if value is not None else ()
    return any(t.name in {f"ddpify.runtime.{name}" for name in names} for t in things)
