"""Evaluation loops whose batches are dealt to the ranks whole, each as one process has it.

Whatever is computed from one batch alone is then what one process computes, also a mean over the
targets that count, and what is added up over the batches is added over the ranks. It must not
matter which batch came before, or how many did.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts import carried, roles, rounds
from ddpify.facts.details import call_that_made, loader_arguments
from ddpify.facts.events import Access, Bind, Call, LoopEnd, Where
from ddpify.facts.joining import is_zero
from ddpify.facts.locality import is_local, loaders_in
from ddpify.facts.owners import key_of
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import OF_ONE_RANK, Kind, Measure, Thing, Value

REPEATABLE = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp),
    *(ast.expr_context, ast.operator, ast.unaryop),
)
Key = tuple[Thing, str]


def can_deal(m: Machine, loader: Thing) -> bool:
    """Whether a loader's batches are blocks of the data set, of a size that can be said again."""
    given = loader_arguments(loader)
    shuffle, size = given.shuffle, given.batch_size
    if shuffle is not None and not (shuffle.known and not shuffle.const):
        return False
    if size is None or (size.known and size.const is None):
        return False
    return batch_size(m, loader) is not None


def batch_size(m: Machine, loader: Thing) -> str | None:
    """How the call that makes a loader says its batch size; None where that may not be repeated."""
    call = call_that_made(loader)
    site = call.arg_site(1, "batch_size") if call is not None else None
    node = m.tree(site.path).expression(site) if site is not None else None
    if node is None or not all(isinstance(n, REPEATABLE) for n in ast.walk(node)):
        return None
    return ast.unparse(node)


def deals(m: Machine, loop: Loop) -> bool:
    """Whether all that a loop goes over is dealt batch by batch."""
    loaders = loaders_in(loop.over)
    return bool(m.target.dealt and loaders) and all(t.born in m.target.dealt for t in loaders)


def measured(m: Machine, value: Value) -> Value:
    """A mean over a count that varies from batch to batch is one of its batch, on any rank."""
    if value.measure is not Measure.RATIO:
        return value
    loaders = value.loaders()
    dealt = bool(loaders) and all(t.born in m.target.dealt for t in loaders)
    return value.but(measure=Measure.MEAN) if dealt else value


# ---- next(iter(loader))
def is_first(m: Machine, f: Frame, call: Call) -> bool:
    """``next(iter(loader))`` of a dealt loader, where all ranks come by: rank 0 has that batch."""
    node = m.tree(call.site.path).expression(call.site)
    made = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else None
    if not isinstance(made, ast.Call) or len(made.args) != 1 or call.kwargs:
        return False
    iterators = call.args[0].of(Kind.ITERATOR)
    over = [v for t in iterators if t.name == "builtins.iter" for v in t.over]
    loaders = [t for value in over for t in value.things]
    if not loaders or len(iterators) != len(call.args[0].things):
        return False
    dealt = all(t.kind is Kind.LOADER and t.born in m.target.dealt for t in loaders)
    return dealt and _by_all(m, m.where(f))


def _by_all(m: Machine, where: Where) -> bool:
    """Whether all ranks come by equally often."""
    tests = [guard.test for guard in where.conditions()]
    if any(is_local(m, test) or test.dep(*OF_ONE_RANK) for test in tests):
        return False
    return not any(loaders_in(loop.over) or is_local(m, loop.over) for loop in where.loops())


# ---- What a loop adds up
def adds(m: Machine, f: Frame, loop: Loop, node: ast.stmt, name: str) -> bool:
    """Whether a name begins at zero before the loop, which then only adds to it."""
    uses = [n for n in ast.walk(node) if _names(n, name, ast.Store) or _names(n, name, ast.Load)]
    tree = m.tree(loop.site.path)
    if not uses or not all(_addition(tree.statement(tree.site(n)), name) for n in uses):
        return False
    if any(e.value.dep(*OF_ONE_RANK) for e in m.events.binds_of(f) if e.target == name):
        return False
    return _begins_at_zero(m, f, loop, name)


def _names(node: ast.AST, name: str, context: type[ast.expr_context]) -> bool:
    if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, context):
        return False
    return ast.unparse(node) == name


def _addition(statement: ast.AST | None, name: str) -> bool:
    """``name += …`` or ``name = name + …``, where the rest does not look at ``name``."""
    added: ast.expr | None = None
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        added = statement.value
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        sum_ = statement.value
        if isinstance(sum_.op, (ast.Add, ast.Sub)) and ast.unparse(sum_.left) == name:
            added = sum_.right
        elif isinstance(sum_.op, ast.Add) and ast.unparse(sum_.right) == name:
            added = sum_.left
    return added is not None and not any(_names(n, name, ast.Load) for n in ast.walk(added))


def _begins_at_zero(m: Machine, f: Frame, loop: Loop, name: str) -> bool:
    """Set to zero each time before the loop begins, and to nothing else."""
    starts = [
        e
        for e in m.events.binds_of(f)
        if e.target == name and e.site.path == loop.site.path and e.site < loop.site
    ]
    around = loop.parent.site if loop.parent is not None else None
    anew = [e for e in starts if (e.where.loop.site if e.where.loop else None) == around]
    return bool(anew) and all(is_zero(e.value) for e in starts)


# ---- Whether a batch is computed with alone
def alone(m: Machine, loop: Loop, node: ast.stmt, end: LoopEnd) -> bool:
    """Whether nothing in the loop looks at what earlier passes left, or at how many there were."""
    if not isinstance(node, ast.For) or end.samples or end.batches:
        return False
    tree = m.tree(loop.site.path)
    names = carried.carried(node) | {name for name in end.sums if "." not in name}
    if any(not _own(tree, node, name) for name in names):
        return False
    if any(rounds.numbers(m, tree, node)) or _looks_back(m, loop, end):
        return False
    inside = (e for e in m.events.during(loop) if isinstance(e, Call))
    return not any(_remembers(m, call, loop) for call in inside)


def _remembers(m: Machine, call: Call, loop: Loop) -> bool:
    """Whether samples are given to an object that cannot be looked into: it may keep them.

    So may an iterator that each pass takes something from.
    """
    if not call.where.runs_in(loop):
        return False
    if call.name in roles.NEXT:
        return True
    if not any(is_local(m, value) for value in (*call.args, *call.kwargs.values())):
        return False
    called = call.receiver or m.values.get(call.callee)
    return called is not None and any(
        t.kind is Kind.UNKNOWN and t.part_of is None and not t.born.within(loop.site)
        for t in called.things
    )


def _own(tree: Tree, node: ast.For, name: str) -> bool:
    """Whether a name is read only where it is added to."""
    reads = [n for s in node.body for n in ast.walk(s) if _names(n, name, ast.Load)]
    return all(_in_addition(tree, read, name) for read in reads)


def _in_addition(tree: Tree, read: ast.AST, name: str) -> bool:
    """``name[i] += …``, ``name = name + …``, or a method for its own sake: ``name.add_(…)``."""
    above = tree.parent(read)
    if isinstance(above, ast.Subscript) and above.value is read:
        statement = tree.parent(above)
        return isinstance(statement, ast.AugAssign) and statement.target is above
    statement = next((a for a in tree.ancestors(read) if isinstance(a, ast.stmt)), None)
    if not isinstance(statement, ast.Expr):
        return _addition(statement, name)
    call = statement.value
    if not isinstance(call, ast.Call):
        return False
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    rest = [*call.args, *[k.value for k in call.keywords]]
    mentions = sum(_names(n, name, ast.Load) for part in rest for n in ast.walk(part))
    first = bool(call.args) and call.args[0] is read
    return (owner is read and not mentions) or (first and mentions == 1)


def _looks_back(m: Machine, loop: Loop, end: LoopEnd) -> bool:
    """Whether an attribute that the loop changes is read for anything but its own change."""
    changed = set(_changes(m, loop))
    meters = [loop.frame.lookup(name) for name in (*end.meters, *end.reduced)]
    things = {thing for value in meters if value is not None for thing in value.things}
    summed = end.owned | {(thing, name) for thing in things for name in ("sum", "count")}
    for event in m.events.during(loop):
        if not isinstance(event, Access) or event.stored or not event.where.runs_in(loop):
            continue
        for thing in event.base.things:
            key = (thing, event.attribute)
            if key in changed and not _for_itself(m, event, key, summed):
                return True
    return False


def _changes(m: Machine, loop: Loop) -> Iterator[Key]:
    for event in m.events.during(loop):
        if isinstance(event, Bind) and event.where.runs_in(loop):
            key = key_of(event)
            if key is not None:
                yield key
        elif isinstance(event, Access) and event.stored and event.where.runs_in(loop):
            yield from ((thing, event.attribute) for thing in event.base.things)


def _for_itself(m: Machine, read: Access, key: Key, summed: frozenset[Key]) -> bool:
    """``self.sum += x``, ``if self.sum is None``, or ``self.avg = self.sum / self.count``.

    The last where nothing is added up that is computed from ``avg``.
    """
    tree = m.tree(read.base_site.path)
    owner = tree.expression(read.base_site)
    node = tree.parent(owner) if owner is not None else None
    statement = tree.statement(read.base_site)
    if owner is None or not isinstance(node, ast.Attribute):
        return False
    name = ast.unparse(node)
    if isinstance(node.ctx, ast.Store):
        return _addition(statement, name)
    if _in_addition(tree, node, name) or _asks_for_start(statement, name):
        return True
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    others = [t.attr for t in targets if isinstance(t, ast.Attribute) and _same(t.value, owner)]
    alone = bool(others) and len(others) == len(targets)
    return alone and not any((key[0], other) in summed for other in others)


def _same(one: ast.expr, other: ast.expr) -> bool:
    return ast.unparse(one) == ast.unparse(other)


def _asks_for_start(statement: ast.stmt | None, name: str) -> bool:
    """``if self.matrix is None: …``"""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == f"{name} is None"
