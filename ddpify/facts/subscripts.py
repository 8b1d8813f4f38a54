"""Elements of values: entries of containers, rows of a batch, parts of a module."""

from __future__ import annotations

import ast

from ddpify.facts import (
    axis_counts,
    batch_axis,
    containers,
    counts,
    library,
    library_losses,
    lookups,
    rows,
    special,
    tables,
)
from ddpify.facts.containers import item_of
from ddpify.facts.details import Divided, Factory, call_that_made, is_of_one
from ddpify.facts.events import Access
from ddpify.facts.joining import computed, flat_deps, flat_measure, join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, UNKNOWN_AXIS, Kind, Measure, Thing, Value, one
from ddpify.python import words
from ddpify.source import Site

_ORDERS = ("torch.randperm", "torch.arange", "numpy.arange", words.PERMUTES)
_OF_SAMPLES = {Measure.UNIFORM, Measure.SAMPLES}


_SHIFTS = frozenset({"1:", ":-1"})


def subscript(m: Machine, f: Frame, node: ast.Subscript) -> Value:
    base = m.evaluate(f, node.value)
    if isinstance(node.slice, ast.Slice) and base.of(*containers.LISTS):
        bounds = [m.evaluate(f, b) if b else None for b in containers.bounds_of(node.slice)]
        lists = base.of(*containers.LISTS)
        return join(*[containers.slice_of(t, bounds, m.site(f, node)) for t in lists])
    index = m.evaluate(f, node.slice)
    if is_shape(node.value):
        return shape_entry(m, f, base, index, m.site(f, node))
    if any(t.name == "os.environ" for t in base.of(Kind.EXTERNAL)):
        return library.environment(m, f, index, m.site(f, node))
    if base.of(Kind.MODEL, Kind.WRAPPED):
        m.record(Access(m.tick(), base, m.site(f, node.value), "__getitem__", m.where(f)))
    if _is_head(m, f, base, node.slice):
        return computed(base, index, measure=Measure.SAMPLES)
    results = [
        special.special(m, f, thing, "__getitem__", (index,), m.site(f, node))
        or library_losses.entry(m, f, thing, index.const if index.known else None, node)
        or _made_up(m, f, thing, index, m.site(f, node))
        or item_of(thing, index)
        or part_of(thing)
        for thing in base.things
    ]
    behind = batch_axis.entry(m, f, base, node.slice, index)
    found = [r for r in (*results, behind) if r is not None]
    spaces = [_library(m, t) for t in base.of(Kind.EXTERNAL) if t.name.endswith(".__dict__")]
    found += [v for v in (lookups.any_member(m, space, m.site(f, node)) for space in spaces) if v]
    if found:
        return join(*found)
    measure = _subscript_measure(base, node.slice, index)
    if measure is Measure.SAMPLES and not base.axis and _cuts(m, f, base, node.slice):
        measure = Measure.MIXED
    part = computed(base, index, measure=measure)
    if part.axis and part.measure is Measure.PICKED:
        part = part.but(axis=UNKNOWN_AXIS)
    if base.measure is Measure.UNIFORM:
        part = tables.indexed(m, m.site(f, node.value), index, part)
    part = rows.subscript(base, node.slice, index, part)
    part = batch_axis.indexed(node.slice, part)
    return axis_counts.indexed(base, node.slice, part)


def _is_head(m: Machine, f: Frame, base: Value, index: ast.expr) -> bool:
    """``grams[:len(x)]``: as many rows of what is the same for all samples as a batch has."""
    upper = batch_axis.end_of(index)
    if (
        upper is None
        or base.measure is not Measure.UNIFORM
        or len(base.things) > len(base.of(Kind.UNKNOWN))
    ):
        return False
    return m.values.get(m.site(f, upper), NOTHING).measure is Measure.COUNT


def _cuts(m: Machine, f: Frame, base: Value, index: ast.expr) -> bool:
    """``outputs[:args.labeled]``: of which samples a part is depends on who has which.

    So it is in every second one, and in a shift (`x[1:]`) of what a loader has put together; of
    batches that are divided later the first axis may be that of time.
    """
    loaders = base.loaders()
    put_together = bool(loaders) and not any(t.detail(Divided) for t in loaders)
    index = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    moved = isinstance(index, ast.Slice) and bool(index.step or ast.unparse(index) in _SHIFTS)
    if moved and put_together and not f.no_grad:
        return True
    bounds = (index.lower, index.upper) if isinstance(index, ast.Slice) else ()
    values = [m.values.get(m.site(f, bound), NOTHING) for bound in bounds if bound is not None]
    return not f.no_grad and any(
        value.measure is Measure.UNIFORM
        and (
            bool(value.dep(Kind.ARGUMENT)) or (value.known and value.const not in (0, 1, -1, None))
        )
        for value in values
    )


def _library(m: Machine, thing: Thing) -> Value:
    return one(m.external(thing.name.removesuffix(".__dict__"), thing.born))


def _made_up(m: Machine, f: Frame, thing: Thing, index: Value, site: Site) -> Value | None:
    """An entry that a ``defaultdict`` makes when it is asked for; None where there is one."""
    factory = thing.detail(Factory)
    if factory is None or thing.keys is None or (not index.known and thing.keys):
        return None
    slot: object = index.const if index.known else 0
    if slot in thing.keys:
        return None
    thing.keys[slot] = m.apply(f, factory.makes, (), site)
    return thing.keys[slot]


def is_shape(node: ast.expr) -> bool:
    """``x.shape`` or ``x.size()``."""
    called = isinstance(node, ast.Call) and not node.args and not node.keywords
    owner = node.func if isinstance(node, ast.Call) else node
    name = "size" if called else "shape"
    return isinstance(owner, ast.Attribute) and owner.attr == name


def items_of(value: Value) -> tuple[Value, ...] | None:
    """The entries of a container, where each is known."""
    return value.things[0].items if len(value.things) == 1 else None


def is_copied(node: ast.expr, over: ast.comprehension) -> bool:
    """``[int(n) for n in x.size()]``: the lengths once more."""
    element = getattr(node, "elt", None)
    if isinstance(element, ast.Call) and ast.unparse(element.func) == "int" and element.args:
        element = element.args[0]
    same = isinstance(element, ast.Name) and ast.unparse(over.target) == element.id
    return same and not over.ifs and isinstance(over.iter, ast.Call) and is_shape(over.iter)


def shape_entry(m: Machine, f: Frame, base: Value, index: Value, site: Site) -> Value:
    """``x.shape[i]``: how many entries along the batch axis, or a constant."""
    if is_of_one(base):
        return counts.size(m, f, base, site)
    if base.measure in (Measure.SAMPLES, Measure.PICKED):
        return counts.length(m, f, base, index, site)
    if not (index.known and index.const == 0):
        return NOTHING
    return Value((), flat_deps(base))


def _takes_each(index: Value) -> bool:
    """``torch.randperm(len(x))``, ``range(len(x))``: the samples of a batch, each once."""
    if index.of(Kind.ITERATOR) and index.rows:
        return True
    if batch_axis.is_order(index):
        return True
    made = [call_that_made(t) for t in index.of(Kind.UNKNOWN) if t.name in _ORDERS]
    return bool(made) and all(
        call is not None and bool(call.args) and call.args[0].measure is Measure.COUNT
        for call in made
    )


def _subscript_measure(base: Value, index: ast.expr, given: Value) -> Measure | None:
    if base.axis and base.measure in (Measure.SAMPLES, Measure.PICKED):
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        if flat_measure(given) in (Measure.SAMPLES, Measure.PICKED):  # `target[mask]`
            return Measure.PICKED
        cuts = base.axis < 0 and all(isinstance(part, ast.Slice) for part in parts)
        return base.measure if cuts else Measure.MIXED
    if base.measure is Measure.SAMPLES:
        items = given.things[0].items if isinstance(index, ast.Tuple) and given.things else None
        if _takes_each(items[0] if items else given):  # `logs[range(n), labels]`
            others = {flat_measure(item) for item in (items or ())[1:]}
            return Measure.SAMPLES if others <= _OF_SAMPLES else Measure.MIXED
        if flat_measure(given) in (Measure.SAMPLES, Measure.PICKED):  # `boxes[positive]`
            return Measure.PICKED
        whole = base.of(Kind.BATCH) or isinstance(index, ast.Slice)
        sliced = isinstance(index, ast.Tuple) and batch_axis.keeps(index)
        return Measure.SAMPLES if whole or sliced else Measure.MIXED
    if base.measure is Measure.UNIFORM:  # `weights[labels]` has an entry per sample
        local = tables.part(given) if isinstance(index, ast.Tuple) else flat_measure(given)
        return local if local in (Measure.UNIFORM, Measure.SAMPLES) else Measure.MIXED
    if base.measure is Measure.PICKED:
        sliced = isinstance(index, ast.Tuple) and isinstance(index.elts[0], ast.Slice)
        return Measure.PICKED if sliced or isinstance(index, ast.Slice) else Measure.MIXED
    return base.measure


def part_of(thing: Thing) -> Value | None:
    """An entry of a `Sequential` or `ModuleList`, None when the thing is not a module."""
    if thing.kind not in (Kind.MODEL, Kind.WRAPPED):
        return None
    known = thing.attrs.get("__getitem__")
    if known is None:
        child = Thing(Kind.UNKNOWN, thing.born, f"{thing.name}[]", part_of=thing)
        known = thing.attrs["__getitem__"] = Value((child,), frozenset({thing}))
    return known
