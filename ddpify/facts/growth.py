"""Lists that a loop fills: with one entry per sample, or with one per batch.

Ranks' lists can only be put together again when it is certain which samples their entries belong
to: made empty before the loop, grown in one place, in every pass, by something that has one row
for each sample of the batch.

Lists with a mean, or a sum, of each batch: ranks have as many entries, and join each. ::

losses.append(loss.item())
...
losses[:] = reduce_mean(losses)
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpify.facts import carried
from ddpify.facts.conditions import conditioned
from ddpify.facts.containers import LISTS
from ddpify.facts.events import Bind, Call
from ddpify.facts.joining import flat_deps, flat_measure, join, listed, parts_of
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.locality import is_local
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import has_rows, per_sample
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.source import Site

NUMBERS: dict[Measure | None, str] = {Measure.MEAN: "numbers", Measure.SUM: "totals"}
OF_ONE = (Measure.ENTRY, Measure.UNIFORM)
MUTATES = frozenset("append extend insert pop remove clear sort reverse".split())


@dataclass(frozen=True)
class Growth:
    """The one statement in a loop that a list grows by; ``inner`` is a loop inside around it."""

    how: str
    value: ast.expr
    inner: ast.For | None


@dataclass(frozen=True)
class Filled:
    """Names of lists that a loop fills with an entry per sample, per batch, or something else."""

    samples: tuple[str, ...]
    batches: tuple[str, ...]
    others: tuple[str, ...]
    numbers: tuple[str, ...]
    totals: tuple[str, ...]


def extended(m: Machine, f: Frame, node: ast.AugAssign) -> bool:
    """``found += [...]`` on a list that began empty; False when it is something else."""
    if not isinstance(node.op, ast.Add) or not isinstance(node.target, ast.Name):
        return False
    known = f.lookup(node.target.id)
    thing = _list(m, known) if known is not None else None
    if known is None or thing is None:
        return False
    added = m.evaluate(f, node.value)
    thing.inner = join(thing.inner, conditioned(m.element_of(f, added), f.guards))
    m.record(Bind(m.tick(), node.target.id, known, m.where(f), m.site(f, node.target)))
    return True


def _list(m: Machine, value: Value) -> Thing | None:
    """The list a value is, when that was made empty."""
    if len(value.things) != 1 or value.things[0].kind not in LISTS:
        return None
    thing = value.things[0]
    if thing.born.path not in m.modules:
        return None
    node = m.tree(thing.born.path).expression(thing.born)
    called = isinstance(node, ast.Call) and ast.unparse(node) == "list()"
    return thing if called or (isinstance(node, ast.List) and not node.elts) else None


def fill(m: Machine, f: Frame, loop: Loop, node: ast.For | ast.AsyncFor) -> None:
    """Lists that got one entry in each pass of a loop over the samples of a batch have rows."""
    if not isinstance(node, ast.For) or not per_sample(loop.over) or _pairs(m, loop):
        return
    for name, value in _begun(m, f, loop):
        added = each_pass(node, name)
        entries = [m.values.get(m.site(f, each)) for each in added]
        if not added or any(e is None or flat_measure(e) not in OF_ONE for e in entries):
            continue
        grown = growth(m.tree(loop.site.path), node, name)
        own = grown is not None and not carried.depends([node], added)
        f.bind(name, value.but(rows=own, blocks=0 if own else 1))


def each_pass(node: ast.For, name: str) -> list[ast.expr]:
    """What a loop may append to a list, where each pass appends once, whatever it decides."""
    skips = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom)
    if any(isinstance(inner, skips) for inner in ast.walk(node)):
        return []
    number, added = _appended(node.body, name)
    return added if number == 1 else []


def _appended(block: Sequence[ast.stmt], name: str) -> tuple[int | None, list[ast.expr]]:
    """How often statements append to a list, None where that depends; and what."""
    total, added = 0, list[ast.expr]()
    for statement in block:
        mentions = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name]
        called = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(statement, (ast.If, ast.With)):
            sides = [statement.body, *([statement.orelse] if isinstance(statement, ast.If) else [])]
            found = [_appended(side, name) for side in sides]
            inside = [n for side in sides for each in side for n in ast.walk(each)]
            number = found[0][0] if len({each[0] for each in found}) == 1 else None
            if number is None or any(mention not in inside for mention in mentions):
                return None, []
            total += number
            added += [value for _, values in found for value in values]
        elif len(mentions) == 1 and isinstance(called, ast.Call) and _appends(called, mentions[0]):
            total += 1
            added += called.args
        elif mentions:
            return None, []
    return total, added


def _appends(call: ast.Call, mention: ast.Name) -> bool:
    method = call.func
    own = isinstance(method, ast.Attribute) and method.value is mention
    return own and ast.unparse(method).endswith(".append") and len(call.args) == 1


def _pairs(m: Machine, loop: Loop) -> bool:
    """Whether samples of a batch are held against each other, in a loop in a loop."""
    return any(loop in _above(other) and per_sample(other.over) for other in m.loops)


def _above(loop: Loop) -> Iterator[Loop]:
    parent = loop.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def filled(m: Machine, f: Frame, loop: Loop, node: ast.stmt, done: set[str]) -> Filled:
    """The lists that a loop over a loader fills and that are read after it, by their names."""
    found: dict[str, list[str]] = defaultdict(list)
    tree = m.tree(loop.site.path)
    trains, single = _trains(m, loop), carried.deals_one(loop.over)
    for name in _grown_in(m, f, loop):
        value = f.lookup(name)
        if value is None or name in done or not tree.read_after(node, name):
            continue
        usual = node if isinstance(node, ast.For) and not (trains and not single) else None
        begun = usual is not None and name in dict(_begun(m, f, loop))
        grown = growth(tree, usual, name) if usual is not None and begun else None
        which = _which(m, f, node, grown) if grown is not None else ""
        which = which or NUMBERS.get(_gets(m, loop, value), "")
        found[which].append(name)
    return Filled(
        tuple(found["samples"]),
        tuple(found["batches"]),
        tuple(found[""]),
        tuple(found["numbers"]),
        tuple(found["totals"]),
    )


def _gets(m: Machine, loop: Loop, value: Value) -> Measure | None:
    """What a list gets in each pass that ranks make: ``losses.append(loss.item())``."""
    thing = _list(m, value)
    grown = [e for e in m.events.during(loop) if isinstance(e, Call) and e.name[1:] in MUTATES]
    return gets(m, thing, value, grown) if thing is not None else None


def _trains(m: Machine, loop: Loop) -> bool:
    """In training the order of samples is not that of the data set."""
    return any(isinstance(e, Call) and e.name == ".backward" for e in m.events.during(loop))


def _grown_in(m: Machine, f: Frame, loop: Loop) -> list[str]:
    """Names of this frame whose lists grow in the loop."""
    things = {
        thing
        for event in m.events.during(loop)
        if isinstance(event, Call) and event.receiver is not None and event.name[1:] in MUTATES
        for thing in event.receiver.of(*LISTS)
    }
    added = {event.target for event in m.events.binds_in(loop.site)}
    return [
        name
        for name, value in f.env.items()
        if _holds(value, things) or (name in added and _list(m, value) is not None)
    ]


def _holds(value: Value, lists: set[Thing], depth: int = 2) -> bool:
    """Whether a value is one of these lists, or a container of some: ``found[name].append(x)``."""
    if not lists.isdisjoint(value.things):
        return True
    inner = (part for t in value.of(*CONTAINERS) for part in parts_of(t)) if depth else ()
    return any(_holds(part, lists, depth - 1) for part in inner)


def _which(m: Machine, f: Frame, node: ast.stmt, grown: Growth) -> str:
    value = m.values.get(m.site(f, grown.value))
    if value is None or not isinstance(node, ast.For):
        return ""
    loops = [node, *([grown.inner] if grown.inner is not None else [])]
    if carried.depends(loops, [grown.value]):
        return ""
    if grown.inner is not None:
        over = m.values.get(m.site(f, grown.inner.iter))
        aligned = over is not None and per_sample(over) and grown.how == "append"
        return "samples" if aligned and flat_measure(value) in OF_ONE else ""
    if grown.how == "append" and flat_measure(value) is Measure.ENTRY:  # of a batch of one
        return "samples"
    if not has_rows(value) or value.of(Kind.BATCH):
        return ""
    return "samples" if grown.how == "extend" else "batches"


def growth(tree: Tree, node: ast.For, name: str) -> Growth | None:
    """How a list grows in a loop: None unless in one place, in every pass."""
    mentions = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name]
    skips = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom)
    if len(mentions) != 1 or any(isinstance(n, skips) for n in ast.walk(node)):
        return None
    found = _statement(tree, mentions[0])
    if found is None:
        return None
    statement, how, value = found
    inner: list[ast.For] = []
    below: ast.AST = statement
    for above in tree.ancestors(statement):
        if below not in getattr(above, "body", []):
            return None
        if above is node:
            return Growth(how, value, inner[0] if inner else None) if len(inner) < 2 else None
        if isinstance(above, ast.For):
            inner.append(above)
        elif not isinstance(above, ast.With):
            return None
        below = above
    return None


def _statement(tree: Tree, mention: ast.Name) -> tuple[ast.stmt, str, ast.expr] | None:
    above = tree.parent(mention)
    if isinstance(above, ast.AugAssign) and isinstance(above.op, ast.Add):
        return (above, "extend", above.value) if above.target is mention else None
    call = tree.parent(above) if isinstance(above, ast.Attribute) else None
    statement = tree.parent(call) if isinstance(call, ast.Call) and call.func is above else None
    if not isinstance(above, ast.Attribute) or above.attr not in ("append", "extend"):
        return None
    if not isinstance(call, ast.Call) or not isinstance(statement, ast.Expr):
        return None
    return (statement, above.attr, call.args[0]) if len(call.args) == 1 else None


def _begun(m: Machine, f: Frame, loop: Loop) -> list[tuple[str, Value]]:
    """Names of lists made empty in this function before the loop, and not touched until then."""
    found = []
    for name, value in list(f.env.items()):
        thing = _list(m, value)
        if thing is None or not _made_here(f, thing, loop):
            continue
        if not _touched(m, f, name, thing, loop):
            found.append((name, value))
    return found


def _made_here(f: Frame, thing: Thing, loop: Loop) -> bool:
    inside = f.function is None or thing.born.within(f.function.site)
    same = thing.born.path == loop.site.path
    return same and inside and not thing.born.within(loop.site) and thing.born < loop.site


def _touched(m: Machine, f: Frame, name: str, thing: Thing, loop: Loop) -> bool:
    """Whether the list was passed on, or grew elsewhere, before the loop ended."""
    tree = m.tree(loop.site.path)
    scope = f.function.node if f.function is not None else tree.module
    first, last = thing.born, loop.site
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            site = tree.site(node)
            if first < site < last and not site.within(last):
                return True
    return any(
        e.receiver is not None and thing in e.receiver.things and not e.site.within(loop.site)
        for e in m.events.named(f".{name}" for name in MUTATES)
    )


def gathered(value: Value, site: Site) -> Value:
    """The list after the ranks put theirs together."""
    deps = frozenset(d for d in flat_deps(value) if d.kind is not Kind.BATCH)
    made = Thing(Kind.ITERATOR, site, "gathered", inner=Value((), deps))
    return Value((made,), deps)


def gets(m: Machine, thing: Thing, value: Value, changes: Sequence[Call]) -> Measure | None:
    """MEAN or SUM where a list, which these calls may change, gets one in each common pass."""
    mine = [c for c in changes if c.receiver is not None and thing in c.receiver.things]
    measure = listed(value)
    return measure if mine and all(_adds(m, call, measure) for call in mine) else None


def _adds(m: Machine, call: Call, measure: Measure | None) -> bool:
    one = call.args[0] if call.name == ".append" and len(call.args) == 1 else NOTHING
    alike = not any(is_local(m, guard.test) for guard in call.where.conditions())
    return alike and one.measure is measure


def joined(value: Value) -> None:
    """Such a list after the ranks have put each entry together, in place."""
    for thing in value.of(*LISTS) if listed(value) is not None else ():
        deps = flat_deps(thing.inner or NOTHING)
        thing.inner = Value((), frozenset(d for d in deps if d.kind is not Kind.BATCH))
