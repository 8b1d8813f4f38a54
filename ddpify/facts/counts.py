"""Counts that differ between ranks: what is one, what still is it, and which means are over one.

`mask.sum()` is another number on each rank, so a loss that divides by it is no mean over the
batch. A `TALLY` thing is such a count, born at the expression that gives it; a `RATIO` thing among
what a value came from is a mean over one. A value that may be a tally or something else has the
tally among its dependencies, too.
"""

from __future__ import annotations

import ast

from ddpify.facts import matrices, measures, rows
from ddpify.facts.details import Collated, CountMean, Divided, FirstEntry, Tally, is_of_one
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_deps
from ddpify.facts.locality import is_shared_out
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, UNKNOWN_AXIS, Kind, Measure, Thing, Value, constant
from ddpify.source import Site

DIFFERENTIABLE = (Kind.FORWARD, Kind.MODEL, Kind.WRAPPED, Kind.PARAMETERS)
_OF_OUTPUTS = (Kind.FORWARD, Kind.GRAPH)
SAME = frozenset("item float double int long to cpu cuda detach clone".split())
ROUNDED = frozenset({"int", "long"})
CLAMPS = frozenset({"clamp", "clamp_", "clamp_min", "clamp_min_"})
PICKS = frozenset({"nonzero", "masked_select", "argwhere"})
COMPARES = frozenset("eq ne lt gt le ge".split())
WHOLE_NUMBERS = COMPARES | {"one_hot"}  # no gradient goes through what gives these
SIZES = frozenset({"numel", "nelement"})


def without_gradient(value: Value) -> Value:
    """What a comparison or a size gives: no gradient goes through it to a model's output."""
    return value.but(deps=frozenset(d for d in value.deps if d.kind not in _OF_OUTPUTS))


def compared(f: Frame, name: str, value: Value) -> Value:
    """What a function of this name gives, as ``targets != 0`` does where it is ``targets.ne(0)``.

    Without gradients there is nothing to cut: what an evaluation computed decides later.
    """
    return without_gradient(value) if name in WHOLE_NUMBERS and not f.no_grad else value


def size(m: Machine, f: Frame, value: Value, site: Site) -> Value:
    """How many entries along the batch axis (or a multiple of it)."""
    plain = without_gradient(computed(value))
    if value.measure is Measure.PICKED:
        return tally(m, f, plain.but(measure=Measure.SUM), site)
    if is_of_one(value):  # each sample has its own
        return plain.but(measure=Measure.ENTRY)
    measure = Measure.COUNT if value.measure is Measure.SAMPLES else Measure.MIXED
    return plain.but(measure=measure, rows=rows.has_rows(value))


def length(m: Machine, f: Frame, value: Value, axis: Value, site: Site) -> Value:
    """How many entries along an axis: that of the batch, or one that is alike on all ranks."""
    if value.axis == UNKNOWN_AXIS:
        return without_gradient(computed(value, measure=Measure.MIXED))
    if axis.known and axis.const == value.axis:
        return size(m, f, value, site)
    features = axis.const not in (0, 1) and value.dep(Kind.FORWARD)
    return NOTHING if features else _longest(m, f, value, site)


def _longest(m: Machine, f: Frame, value: Value, site: Site) -> Value:
    """A length that a ``collate_fn`` has filled a rank's share of a batch up to, if it has."""
    loaders = value.loaders()
    filled = (t for t in loaders if t.detail(Collated) is not None and is_shared_out(m, t))
    if all(t.detail(Divided) is not None for t in filled):
        return NOTHING
    return Value((), frozenset({m.make(Kind.LENGTH, f, site)}))


def shape(m: Machine, f: Frame, value: Value, site: Site) -> Value:
    """``x.size()``: how many samples, and what is the same for all of them."""
    whole = Thing(Kind.ITERATOR, site, inner=length(m, f, value, constant(1 - value.axis), site))
    whole.describe(FirstEntry(length(m, f, value, constant(0), site)))
    made = Value((whole,), flat_deps(value), value.measure, rows=rows.has_rows(value))
    return made.but(axis=value.axis)


def tally(m: Machine, f: Frame, value: Value, site: Site) -> Value:
    """A sum over samples that no gradient goes through may be a count to divide by."""
    differentiable = value.dep(*DIFFERENTIABLE) and not f.no_grad
    if value.measure is not Measure.SUM or differentiable:
        return value
    return _made(m, f, value, site)


def _made(
    m: Machine,
    f: Frame,
    value: Value,
    site: Site,
    of: Site | None = None,
    floor: Site | None = None,
    rounded: bool = False,
) -> Value:
    made = m.make(Kind.TALLY, f, site)
    made.describe(Tally(value.of(Kind.TALLY), m.where(f), of, floor, rounded))
    known = not value.things or pure(value)
    deps = flat_deps(value) if known else flat_deps(value) | {made}
    return Value((made,), deps, Measure.SUM)


def pure(value: Value) -> bool:
    """Whether a value is one tally for certain."""
    return len(value.things) == 1 and counts_only(value)


def counts_only(value: Value) -> bool:
    """Whether a value is a tally for certain, perhaps another one in each call of a function."""
    return bool(value.things) and value.of(Kind.TALLY) == value.things and not _maybe(value)


def _maybe(value: Value) -> bool:
    return any(t in value.deps for t in value.things)


def kept(m: Machine, f: Frame, value: Value, name: str, call: Call) -> Value | None:
    """The same count as another type, or bounded from below; None when it is something else.

    ``name`` is that of a method of ``value`` or of a function with ``value`` as first argument.
    """
    if not value.of(Kind.TALLY):
        return None
    method = call.receiver is value
    of = call.receiver_site if method else call.arg_site(0, "input")
    if name in SAME:
        return _made(m, f, value, call.site, of=of, rounded=name in ROUNDED)
    given = len(call.args) + len(call.kwargs) - (0 if method else 1)
    bound = call.arg_site(0 if method else 1, "min")
    if name not in CLAMPS or given != 1 or bound is None:
        return None
    return _made(m, f, value, call.site, of=of, floor=bound)


def larger(m: Machine, f: Frame, call: Call) -> Value | None:
    """``max(count, 1)`` or ``max(1, count)``; None when it is something else."""
    counts = [i for i, value in enumerate(call.args) if value.of(Kind.TALLY)]
    if len(counts) != 1 or len(call.args) != 2 or call.kwargs:
        return None
    (own,) = counts
    if call.args[1 - own].measure is not Measure.UNIFORM:
        return None
    sites = call.arg_sites
    return _made(m, f, call.args[own], call.site, of=sites[own], floor=sites[1 - own])


def arithmetic(m: Machine, f: Frame, node: ast.BinOp, left: Value, right: Value) -> Value:
    """``left op right``: a mean over a tally says so, a sum of tallies is one."""
    if isinstance(node.op, ast.MatMult):
        product = matrices.product(m, matrices.OPERATOR, left, right, m.site(f, node.right))
        if product is not None:
            return product
    measure = measures.binary(node.op, left, right)
    if any(_by_length(node.op, one, other) for one, other in ((left, right), (right, left))):
        measure = Measure.MIXED
    value = computed(left, right, measure=measure)
    if isinstance(node.op, ast.Div):
        return quotient(m, f, value, m.site(f, node), right, m.site(f, node.right))
    if isinstance(node.op, ast.Add) and _whole(left) and _whole(right):
        return tally(m, f, value, m.site(f, node))
    return value


def _by_length(op: ast.operator, value: Value, number: Value) -> bool:
    """Whether what is made of samples is scaled by a length that another rank may not have."""
    if number.measure is not Measure.UNIFORM or not number.dep(Kind.LENGTH):
        return False
    if value.measure in measures.ENTRIES:
        return isinstance(op, (ast.Div, ast.FloorDiv))
    scales = isinstance(op, (ast.Mult, ast.Div, ast.FloorDiv))
    return scales and value.measure is not Measure.UNIFORM


def forms(tally: Thing) -> list[Thing]:
    """The expressions a count went through (`.item()`, `max(n, 1)`), the last one first."""
    found = [tally]
    while (form := found[-1].detail(Tally)) is not None and form.form_of:
        found.append(form.form_of[0])
    return found


def is_bounded(tally: Thing) -> bool:
    """Whether something keeps the count from being as small as it is."""
    details = (form.detail(Tally) for form in forms(tally))
    return any(one is not None and one.floor is not None for one in details)


def _whole(value: Value) -> bool:
    """A count that nothing bounds."""
    return pure(value) and not is_bounded(value.things[0])


def quotient(m: Machine, f: Frame, value: Value, site: Site, count: Value, at: Site) -> Value:
    """A sum over ``count``, which stands ``at``, where that differs between ranks."""
    if value.measure is not Measure.RATIO or count.measure is not Measure.SUM:
        return value
    return over(m, f, value, site, CountMean(m.where(f), count, at))


def over(m: Machine, f: Frame, value: Value, site: Site, mean: CountMean) -> Value:
    """A mean over a count that differs between ranks; ``mean`` says which."""
    made = m.make(Kind.RATIO, f, site)
    made.describe(mean)
    return value.but(deps=value.deps | {made}, measure=Measure.RATIO)


def shared(f: Frame, value: Value, site: Site, mean: bool) -> Value:
    """What ``per_rank_count`` makes of a count at ``site``, ``global_mean`` of a ``mean`` there.

    In training the count is the same on each rank, and what it divides this rank's part of the
    global mean. Without gradients nothing changes.
    """
    if f.no_grad:
        return value
    if not mean:
        deps = frozenset(d for d in flat_deps(value) if d.kind is not Kind.BATCH)
        return Value((), deps, Measure.COUNT)
    deps = frozenset(d for d in value.deps if d.kind is not Kind.RATIO or d.born != site)
    whole = value.measure is Measure.RATIO
    return value.but(deps=deps, measure=Measure.MEAN if whole else value.measure)
