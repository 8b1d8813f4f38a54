"""Where the batch size is a number in a training step: noise, labels, shapes, short batches.

A rank's batch is a share of it, so these places take the share, too, and what they make has a row
for each sample of the rank's batch. ::

    z = torch.randn(batch_size, 100)           # what generators make of it is of this rank
    if images.size(0) < batch_size: continue   # or no batch of a rank would be trained on
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from ddpify.facts import library_classes, roles
from ddpify.facts.details import call_that_made, loader_arguments
from ddpify.facts.events import Bind, Call
from ddpify.facts.fresh import makes_anew
from ddpify.facts.model import Loader, Role
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame, FunctionInfo
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value
from ddpify.source import Site

_TORCH = "randn rand zeros ones full empty eye arange randint randperm".split()
SHAPED = (
    frozenset(""".view .reshape .resize_ .expand .repeat numpy.random.normal numpy.random.randn
    numpy.random.uniform numpy.ones numpy.zeros""".split())
    | frozenset(f"torch.{name}" for name in _TORCH)
)
Size = tuple[str, Value]


def sized(m: Machine) -> frozenset[Site]:
    """The expressions in training loops that are the batch size of a loader that trains."""
    calls = roles.calls_of(m)
    training = roles.training_loops(calls)
    loops = {loop.batch.site for loop in training}
    sizes = tuple(_sizes(m, calls))
    inside = [c for c in calls if any(loop.site in loops for loop in c.where.loops())]
    kept = set(inside)
    other = {c.site for c in calls if c not in kept}  # a function that samples, too
    shaped = [c for c in inside if c.site not in other and (c.name in SHAPED or _states(c))]
    found = {s for c in shaped for s in _shapes(m, c, sizes)}
    found |= {s for loop in loops for s in _compared(m, loop, sizes)}
    bodies = [*loops, *(c.site for c in shaped)]
    return frozenset(s for s in found if any(s.within(body) for body in bodies))


def _states(call: Call) -> bool:
    """``model.init_hidden(batch_size)``, which gives tensors that it makes, and nothing else."""
    models = call.receiver.of(Kind.MODEL, Kind.WRAPPED) if call.receiver is not None else ()
    return bool(models) and all(makes_anew(one, call.name.rpartition(".")[2]) for one in models)


def whole_shapes(m: Machine) -> frozenset[Site]:
    """The calls in training loops that are given the batch size from an object or a container,
    where no expression here can be divided: ``torch.zeros(1, self.batch_size, 8)``."""
    calls = roles.calls_of(m)
    training = roles.training_loops(calls)
    loops = {loop.batch.site for loop in training}
    loaders = roles.loaders(calls, training, m)
    training_ones = [one for one in loaders if Role.TRAINING in one.roles]
    given = [one.call.arg(1, "batch_size") for one in training_ones]
    for own, call in (pair for one in training_ones for pair in _batch_samplers(one)):
        given += [*call.args, *call.kwargs.values()] if own else []
    options = {thing for value in given if value is not None for thing in value.of(Kind.ARGUMENT)}
    sizes = tuple(_sizes(m, calls)) if options else ()
    shapes = (c for c in calls if c.name in SHAPED and options & set(_numbers(c.args)))
    inside = (c for c in shapes if any(loop.site in loops for loop in c.where.loops()))
    return frozenset(c.site for c in inside if not any(_shapes(m, c, sizes)))


def model_shapes(m: Machine, inner: Sequence[Call]) -> frozenset[Site]:
    """The calls in models that are given the batch size which their constructors were given.

    ``inner``: what methods do that torch calls by itself. ::

        self.hidden = torch.zeros(1, batch_size, 8)   # in `__init__`
        return x.view(self.batch_size, -1)            # in `forward`
    """
    calls = roles.calls_of(m)
    sizes = tuple(_sizes(m, calls))
    made = (call for call in calls if call.name in SHAPED and _is_init(call.where.function))
    found = {call.site for call in made if any(_shapes(m, call, sizes))}
    binds = (event for event in m.events if isinstance(event, Bind))
    kept = {bind.target for bind in binds if _keeps_size(m, bind, sizes)}
    shapes = (call for call in inner if kept and call.name in SHAPED)
    return frozenset(found | {call.site for call in shapes if kept & set(_said(m, call))})


def _is_init(function: FunctionInfo | None) -> bool:
    """Whether a function makes a module."""
    owner = function.owner if function is not None and function.name == "__init__" else None
    return owner is not None and library_classes.instance_kind(owner) is Kind.MODEL


def _keeps_size(m: Machine, bind: Bind, sizes: tuple[Size, ...]) -> bool:
    """``self.batch_size = batch_size``."""
    at = bind.value_site if _is_init(bind.where.function) else None
    node = m.tree(at.path).expression(at) if at is not None else None
    if at is None or not isinstance(node, ast.Name):
        return False
    origin, path = _origin(m, bind.where.frame, at.path, node)
    return any(_if_size(m, path, origin, sizes))


def _said(m: Machine, call: Call) -> Iterator[str]:
    """The attributes that are said among the lengths of a shape."""
    node = m.tree(call.site.path).expression(call.site)
    for argument in node.args if isinstance(node, ast.Call) else ():
        yield from (ast.unparse(p) for p in ast.walk(argument) if isinstance(p, ast.Attribute))


def _numbers(values: Iterable[Value]) -> Iterator[Thing]:
    for value in values:
        yield from value.of(Kind.ARGUMENT)
        for entries in value.of(Kind.TUPLE):
            yield from _numbers(entries.items or ())


def rows_of(m: Machine) -> Value:
    """The batch size as a number: how many samples this rank's batch has."""
    made = m.made(Kind.BATCH)
    batches = (batch for batch in made if any(t.born in m.sharded for t in batch.stands_for))
    return Value((), frozenset(batches), Measure.COUNT, rows=True)


def _sizes(m: Machine, calls: tuple[Call, ...]) -> Iterator[Size]:
    """How each training loader's batch size is written, and what it is."""
    for call in _divided(m, calls):
        site = call.arg_site(1, "batch_size")
        if site is None:
            continue
        node = m.tree(site.path).expression(site)
        if isinstance(node, ast.Call) and node.args:  # per_rank_batch_size(x)
            node = node.args[0]
        if node is not None:
            origin, path = _origin(m, call.where.frame, site.path, node)
            if isinstance(origin, (ast.Name, ast.Attribute)):
                yield ast.unparse(origin), _value(m, path, origin)


def _divided(m: Machine, calls: tuple[Call, ...]) -> Iterator[Call]:
    """The calls that are given a training loader's batch size: DataLoader, a batch sampler."""
    for loader in roles.loaders(calls, roles.training_loops(calls), m):
        if Role.TRAINING in loader.roles:
            yield loader.call
            yield from (call for own, call in _batch_samplers(loader) if not own)


def _batch_samplers(loader: Loader) -> Iterator[tuple[bool, Call]]:
    """The calls that make a loader's batch samplers, and whether they are of the project's."""
    for given in (loader_arguments(thing).batch_sampler for thing in loader.things):
        for thing in given.things if given is not None else ():
            call = call_that_made(thing)
            if call is not None:
                yield isinstance(thing.ref, ClassInfo), call


def _origin(m: Machine, frame: Frame, path: str, node: ast.expr) -> tuple[ast.expr, str]:
    """What the caller gave for a parameter, and its callers in turn."""
    caller: Frame | None = frame
    while isinstance(node, ast.Name) and caller is not None:
        site = caller.parameters.get(node.id)
        given = m.tree(site.path).expression(site) if site is not None else None
        if given is None or site is None:
            break
        node, path, caller = given, site.path, caller.caller
    return node, path


def _value(m: Machine, path: str, node: ast.expr) -> Value:
    return m.values.get(m.tree(path).site(node), NOTHING)


def _shapes(m: Machine, call: Call, sizes: tuple[Size, ...]) -> Iterator[Site]:
    tree = m.tree(call.site.path)
    node = tree.expression(call.site)
    if not isinstance(node, ast.Call):
        return
    for argument in (*node.args, *[k.value for k in node.keywords]):
        for part in ast.walk(argument):
            if isinstance(part, (ast.Name, ast.Attribute)):
                origin, path = _origin(m, call.where.frame, call.site.path, part)
                yield from _if_size(m, path, origin, sizes)


def _compared(m: Machine, loop: Site, sizes: tuple[Size, ...]) -> Iterator[Site]:
    """``x.size(0) < batch_size``: how long the batch is, and how long they are."""
    tree = m.tree(loop.path)
    for node in tree.nodes(tree.statement(loop)):
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            sides = (node.left, node.comparators[0])
            counts = [_value(m, loop.path, side) for side in sides]
            if any(v.measure is Measure.COUNT and v.rows for v in counts):
                for side in sides:
                    yield from _if_size(m, loop.path, side, sizes)


def _if_size(m: Machine, path: str, node: ast.expr, sizes: tuple[Size, ...]) -> Iterator[Site]:
    tree = m.tree(path)
    above, value = tree.parent(node), _value(m, path, node)
    done = isinstance(above, ast.Call) and "per_rank" in ast.unparse(above.func)
    if done or value.dep(Kind.BATCH) or not isinstance(node, (ast.Name, ast.Attribute)):
        return
    text = ast.unparse(node)
    if any(text == wanted and _same(value, size) for wanted, size in sizes):
        yield tree.site(node)


def _same(value: Value, size: Value) -> bool:
    if value.known and size.known and bool(value.const != size.const):
        return False
    return set(value.dep(Kind.ARGUMENT)) == set(size.dep(Kind.ARGUMENT))
