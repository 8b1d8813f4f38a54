"""Sums that are kept in tensors and arrays: where they begin, and what adds to them."""

from __future__ import annotations

import ast

from ddpify.facts import carried, containers
from ddpify.facts.events import Bind, Call
from ddpify.facts.joining import computed, flat_deps, flat_measure, is_zero, join, parts_of
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.locality import loaders_in
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.values import ZEROS, Kind, Measure, Thing, Value, constant

U, ENTRY, SUM = Measure.UNIFORM, Measure.ENTRY, Measure.SUM
ENTRIES = (Measure.SAMPLES, Measure.PICKED)
ADDED = (Measure.SUM, Measure.COUNT)
ZERO_CALLS = frozenset({"torch.zeros", "numpy.zeros", "torch.zeros_like", "numpy.zeros_like"})
OF_NUMBERS = frozenset({"torch.tensor", "torch.as_tensor", "numpy.array", "numpy.float64"})
SETTINGS = frozenset({"dtype", "device", "layout", "requires_grad", "order", "pin_memory"})
TURNS = frozenset("transpose_ t_ swapaxes_ swapdims_ squeeze_ unsqueeze_".split())  # the axes
SCATTERS = frozenset({"scatter_add_", "index_add_"})


def made(name: str, call: Call) -> Value | None:
    """An array of zeros, or counts of the entries of samples; None when it is neither."""
    if name in ZERO_CALLS:
        return _zeros(call)
    if name in OF_NUMBERS and len(call.args) == 1 and is_zero(call.args[0]):  # `tensor(0.0)`
        return Value((), frozenset(), const=ZEROS)
    fixed = {
        "torch.bincount": ("minlength",),
        "numpy.bincount": ("minlength",),
        "sklearn.metrics.confusion_matrix": ("labels",),
        "torch.histc": ("bins", "min", "max"),
    }.get(name)
    if fixed is None or not all(_given(call, each) for each in fixed) or "normalize" in call.kwargs:
        return None
    entries = [
        v for k, v in (*((str(i), a) for i, a in enumerate(call.args)), *call.kwargs.items())
    ]
    local = {flat_measure(v) for v in entries} - {U}
    if len(local) != 1 or not local <= set(ENTRIES):
        return None
    return computed(*entries, measure=SUM)


def _given(call: Call, name: str) -> bool:
    """The size of the result is given: it is the same on every rank."""
    return name in call.kwargs and flat_measure(call.kwargs[name]) is U


def _zeros(call: Call) -> Value | None:
    shape = [*call.args, *(v for k, v in call.kwargs.items() if k not in SETTINGS)]
    if not shape or any(flat_measure(v) is not U for v in shape):
        return None
    return Value((), frozenset().union(*[flat_deps(v) for v in shape]), const=ZEROS)


def added_to(m: Machine, f: Frame, node: ast.Assign) -> bool:
    """``hits[label] = hits.get(label, 0) + 1``, which is ``hits[label] += 1``."""
    match node:
        case ast.Assign([ast.Subscript(value=owner) as target], ast.BinOp(left, ast.Add(), added)):
            place = ast.unparse(target)
            entry = f"{ast.unparse(owner)}.get({ast.unparse(target.slice)}, 0)"
            if ast.unparse(left) in (place, entry):
                adds = ast.AugAssign(target, ast.Add(), added)
                return augmented(m, f, ast.copy_location(adds, node))
    return False


def augmented(m: Machine, f: Frame, node: ast.AugAssign) -> bool:
    """``matrix[truth, guess] += 1``, ``total += of_one_sample``; False for anything else."""
    item = isinstance(node.target, ast.Subscript)
    array = node.target.value if isinstance(node.target, ast.Subscript) else node.target
    if not isinstance(node.op, ast.Add) or not isinstance(array, (ast.Name, ast.Attribute)):
        return False
    loops = carried.entry_loops(m, f)
    if not item and (not loops or _begins_anew(m, f, array, loops)):
        return False
    before = m.evaluate(f, _load(array))
    kept = item and bool(before.things) and all(t.kind in CONTAINERS for t in before.things)
    held = [part for thing in before.things for part in parts_of(thing)]
    starts = join(*held or [constant(0)]) if kept else before
    if not _is_sum(starts, array if item and not kept else None):
        return False
    index = m.evaluate(f, node.target.slice) if isinstance(node.target, ast.Subscript) else None
    added = [v for v in (index, m.evaluate(f, node.value)) if v is not None]
    if not _adds(added, index) and not _adds_entry(m, f, node, added, loops):
        return False
    if not item and loops and _counts_rounds(m, f, added, loops[-1]):
        return False
    over = [loop.over for loop in loops]
    tests = [guard.test for guard in f.guards if guard.test.measure is ENTRY]
    deps = starts.deps.union(
        *(flat_deps(v) for v in (*added, *over, *tests)), _batches_of(m, loops)
    )
    if kept and isinstance(node.target, ast.Subscript) and index is not None:
        _store_entry(m, f, node.target, index, Value((), deps, SUM))
    else:
        _store(m, f, array, Value((), deps, SUM))
    return True


def _batches_of(m: Machine, loops: tuple[Loop, ...]) -> frozenset[Thing]:
    """The batches of one that a loop goes through: what it counts is of this rank's."""
    if not loops or not carried.deals_one(loops[-1].over):
        return frozenset()
    loaders = set(loaders_in(loops[-1].over))
    made = m.made(Kind.BATCH)
    return frozenset(b for b in made if not loaders.isdisjoint(b.stands_for))


def _counts_rounds(m: Machine, f: Frame, added: list[Value], loop: Loop) -> bool:
    """Whether it is a number of rounds, as all ranks have, of a loop that trains on single
    samples."""
    if loop.frame is not f or not carried.deals_one(loop.over):
        return False
    told = [*added, *(guard.test for guard in f.guards[loop.held :])]
    trains = (e for e in m.events.during(loop) if isinstance(e, Call) and e.name == ".backward")
    return all(flat_measure(v) is U for v in told) and any(trains)


def _begins_anew(
    m: Machine, f: Frame, array: ast.Name | ast.Attribute, loops: tuple[Loop, ...]
) -> bool:
    """Whether what is added up is of one sample alone: each pass begins with zero."""
    if not isinstance(array, ast.Name) or array.id in f.globals_ | f.nonlocals:
        return False
    nodes = carried.nodes_of(m, loops[-1:])
    return loops[-1].frame is not f or not any(array.id in carried.carried(n) for n in nodes)


def _is_sum(value: Value, array: ast.expr | None) -> bool:
    """A sum, or zero where one begins; of an array where ``array`` is given."""
    if any(t.kind is not Kind.TALLY for t in value.things):
        return False
    if value.measure in ADDED:
        return True
    return value.measure is U and (value.const is ZEROS if array is not None else is_zero(value))


def _adds(added: list[Value], index: Value | None) -> bool:
    """A sum over samples goes to a place that is the same on every rank."""
    return index is not None and flat_measure(index) is U and added[-1].measure in ADDED


def _adds_entry(
    m: Machine, f: Frame, node: ast.AugAssign, added: list[Value], loops: tuple[Loop, ...]
) -> bool:
    """Whether the addend, and its place, are of one sample, and each sample has its turn."""
    if not loops or not {flat_measure(v) for v in added} <= {U, ENTRY}:
        return False
    tests = f.guards[loops[-1].held :]
    if not all(guard.test.measure in (U, ENTRY) for guard in tests):
        return False
    asked = [m.tree(guard.site.path).expression(guard.site) for guard in tests]
    given = [node.value, *([node.target.slice] if isinstance(node.target, ast.Subscript) else [])]
    nodes = carried.nodes_of(m, loops)
    return not carried.depends(nodes, [*given, *(a for a in asked if a is not None)])


def _load(node: ast.Name | ast.Attribute) -> ast.expr:
    loaded: ast.expr = ast.parse(ast.unparse(node), mode="eval").body
    return ast.copy_location(loaded, node) if isinstance(node, ast.Name) else node


def _store(m: Machine, f: Frame, target: ast.expr, value: Value) -> None:
    """Conditions on single samples decide what is added, not whether it is a sum."""
    if isinstance(target, ast.Name):
        f.bind(target.id, value)
    elif isinstance(target, ast.Attribute):
        base = m.evaluate(f, target.value)
        for thing in base.things:
            old = thing.attrs.get(target.attr) if len(base.things) > 1 else None
            thing.attrs[target.attr] = join(old, value)
    m.record(Bind(m.tick(), ast.unparse(target), value, m.where(f), m.site(f, target)))


def _store_entry(m: Machine, f: Frame, target: ast.Subscript, index: Value, value: Value) -> None:
    """Of a list or a dict of sums, whose entries have conditions on single samples, too."""
    for thing in m.evaluate(f, target.value).things:
        if thing.keys is not None:
            key: object = index.const if index.known else 0
            thing.keys[key] = join(thing.keys.get(key), value)
        else:
            containers.replace_item(f, thing, index, value)
    m.record(Bind(m.tick(), ast.unparse(target), value, m.where(f), m.site(f, target)))


def in_place(m: Machine, f: Frame, node: ast.Call, call: Call) -> None:
    """``total.zero_()``, ``matrix.index_put_(...)``: what the sum is from here on."""
    target = _target(node, call)
    if target is None:
        return
    before = m.evaluate(f, _load(target))
    if call.name.rpartition(".")[2] in TURNS and not before.things:
        m.assign(f, target, before.but(measure=Measure.MIXED, rows=False))
    if before.things or not (_is_sum(before, target) or is_zero(before)):
        return
    after = _after(before, call)
    if after is not None:
        m.assign(f, target, after)


def _target(node: ast.Call, call: Call) -> ast.Name | ast.Attribute | None:
    found: ast.expr | None = None
    if call.name == "numpy.add.at" and node.args:
        found = node.args[0]
    elif isinstance(node.func, ast.Attribute) and _in_place(node.func.attr):
        found = node.func.value
    return found if isinstance(found, (ast.Name, ast.Attribute)) else None


def _in_place(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_") and name != "requires_grad_"


def _after(before: Value, call: Call) -> Value | None:
    name = call.name.rsplit(".", 1)[-1]
    whole = computed(before, *call.args, *call.kwargs.values())
    if name == "zero_" or (name == "fill_" and call.args and is_zero(call.args[0])):
        return Value((), before.deps, const=ZEROS)
    if name == "add_" and len(call.args) == 1 and not call.kwargs:
        added = call.args[0].measure
        return whole.but(measure=SUM if added in ADDED else Measure.MIXED)
    places, terms = _scattered(name, call)
    local = {measure for value in (*places, *terms) for measure in _held(value)} - {U}
    if places and len(local) == 1 and local <= set(ENTRIES) and _local(places):
        return whole.but(measure=SUM)
    return whole.but(measure=Measure.MIXED if whole.measure is not U else U)


def _scattered(name: str, call: Call) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Where a method adds, and what; nothing when it does something else."""
    if name in SCATTERS and len(call.args) == 3 and not call.kwargs:
        return call.args[1:2], call.args[2:]
    accumulate = call.arg(2, "accumulate")
    if name == "index_put_" and accumulate is not None and accumulate.const is True:
        return call.args[:1], call.args[1:2]
    return (call.args[1:2], call.args[2:]) if call.name == "numpy.add.at" else ((), ())


def _held(value: Value) -> list[Measure]:
    parts = [part for thing in value.of(Kind.TUPLE) for part in parts_of(thing)]
    return [part.measure for part in parts] or [value.measure]


def _local(places: tuple[Value, ...]) -> bool:
    return all(any(measure is not U for measure in _held(value)) for value in places)
