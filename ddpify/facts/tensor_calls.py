"""Functions of torch and numpy on tensors with a batch axis."""

from __future__ import annotations

from ddpify.facts import (
    axis_counts,
    batch_axis,
    by_sample,
    counts,
    matrices,
    measures,
    rows,
    tables,
)
from ddpify.facts.criteria import is_loss, loss_of, over_count, reduction_of
from ddpify.facts.details import CountMean
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_measure, listed, parts_of
from ddpify.facts.open_losses import is_open
from ddpify.facts.padding import compares_filled, filling
from ddpify.facts.protocol import Machine
from ddpify.facts.rows import along_batch
from ddpify.facts.scopes import Frame
from ddpify.facts.values import NOTHING, Kind, Measure, Thing, Value

# Distributions of numbers that are independent of each other, and how far one is from another.
DISTRIBUTIONS = "torch.distributions."
INDEPENDENT = frozenset(
    """Normal LogNormal Laplace Cauchy Bernoulli Beta Gamma Exponential Poisson Uniform StudentT
    Categorical kl_divergence""".split()
)
JOINS = ("torch.cat", "torch.stack", "numpy.concatenate", "torch.autograd.Variable")
# Of each sequence as many entries as it is long: those that are not padding.
PACKS = frozenset({"pack_padded_sequence", "pack_sequence"})


def reduced(
    m: Machine,
    f: Frame,
    how: str,
    measure: Measure,
    axis: object,
    call: Call,
    values: tuple[Value, ...],
) -> Value:
    """``x.sum(axis)`` or ``x.mean(axis)``: perhaps a count, or a mean over one."""
    at, given, reduced_axis = values[0].axis, 0 if call.receiver is values[0] else 1, axis
    if measure in measures.ENTRIES:
        axis = batch_axis.seen_from(at, axis_counts.counted(values[0], axis))
    value = computed(*values, measure=measures.reduce_samples(measure, how, axis))
    if value.measure in measures.ENTRIES:
        kept = call.arg(given + 1, "keepdim")
        axes = axis_counts.less(values[0], reduced_axis, kept)
        value = value.but(axis=batch_axis.left_of(at, reduced_axis, call, given), axes=axes)
    else:
        value = value.but(axis=0, axes=0)
    if axis in (None, 0) and measure in measures.ENTRIES and is_open(m, values[0]):
        return value.but(measure=Measure.MIXED)
    if _is_over_padding(m, f, value, axis, call, values[0]):
        over = CountMean(m.where(f), at=filling(values[0])[0].site)
        return counts.over(m, f, value, call.site, over)
    if value.measure is Measure.RATIO and measure is Measure.PICKED:
        return counts.over(m, f, value, call.site, CountMean(m.where(f), call=call))
    return counts.tally(m, f, value, call.site) if measure in measures.ENTRIES else value


def _is_over_padding(
    m: Machine, f: Frame, mean: Value, axis: object, call: Call, given: Value
) -> bool:
    """``((outputs - targets) ** 2).mean()`` of batches that were filled up, in a loss."""
    whole = mean.measure is Measure.MEAN and axis is None and bool(mean.dep(Kind.FORWARD))
    site = call.receiver_site if call.receiver is given else call.arg_site(0, "input")
    return whole and not f.no_grad and compares_filled(m, site, given)


def picked(call: Call, values: tuple[Value, ...]) -> Value:
    """What a mask picks of samples, also as a tuple of indices."""
    part = computed(*values, measure=Measure.PICKED)
    pieces = "as_tuple" in call.kwargs or call.name == "torch.where"
    return part.but(things=(Thing(Kind.ITERATOR, call.site, inner=part),)) if pieces else part


def on_tensors(m: Machine, f: Frame, name: str, tail: str, call: Call) -> Value | None:
    """torch's functions on tensors with a batch axis."""
    compares = call.args or "input" in call.kwargs  # `F.mse_loss(input=out, target=y)`
    if name.startswith("torch.nn.functional.") and is_loss(tail) and compares:
        return over_count(m, f, loss_of(call, reduction_of(call)), call, call)
    if name.startswith(DISTRIBUTIONS) and tail in INDEPENDENT:
        found = entry_by_entry(call)
        if found is not None:
            return found
    if not name.startswith(("torch.", "numpy.")) or not call.args:
        return None
    first = call.args[0]
    if tail.startswith("is_") and tail in measures.TRAITS:
        return NOTHING
    how = "mean" if _averages(name, call) else tail
    if how in ("sum", "mean"):
        axis = call.arg(1, "dim") or call.arg(1, "axis")
        measure = listed(first) or flat_measure(first)
        return reduced(m, f, how, measure, measures.axis_of(axis), call, call.args)
    paired = matrices.function(m, tail, call) if name.startswith("torch.") else None
    paired = paired or tables.looked_up(m, tail, call, first)
    if paired is not None:
        return paired
    if tail in measures.CREATES and _counted(call):
        return computed(*call.args, measure=Measure.SAMPLES)
    if tail in counts.CLAMPS and first.of(Kind.TALLY):
        return counts.kept(m, f, first, tail, call)
    found = _parts(f, tail, call) or _of_one(tail, first) or by_sample.function(name, tail, call)
    return found or _on_entries(m, f, tail, call) or _put_together(name, tail, call)


def _parts(f: Frame, tail: str, call: Call) -> Value | None:
    """``torch.chunk(x, 2, 1)``."""
    first = call.args[0]
    parts = by_sample.cut(tail, call, 1, first)
    if parts is not None or tail not in rows.CUTS:
        return parts
    cut = not f.no_grad and axis_counts.cuts_samples(call, 1, first)
    return computed(first, measure=Measure.MIXED if cut else first.measure)


def entry_by_entry(call: Call) -> Value | None:
    """``Normal(mean, scale)``, and the method of one that gives a number for each of its own."""
    own = (call.receiver,) if call.receiver is not None else ()
    values = (*own, *call.args, *call.kwargs.values())
    measure = measures.entries(*(v.measure for v in values))
    plain = not any(v.things and v.measure is not Measure.UNIFORM for v in values)
    return computed(*values, measure=measure) if plain and measure in measures.ENTRIES else None


def _averages(name: str, call: Call) -> bool:
    """Without weights."""
    return name == "numpy.average" and len(call.args) == 1 and not call.kwargs


def _of_one(tail: str, entry: Value) -> Value | None:
    """A batch of one sample, in a loop over those of a batch."""
    lifted = tail == "unsqueeze" and entry.measure is Measure.ENTRY
    return computed(entry, measure=Measure.ENTRY) if lifted else None


def _put_together(name: str, tail: str, call: Call) -> Value | None:
    """Tensors one after another, or as a new axis; None when it is neither."""
    if rows.stacks(tail, call):
        return computed(*call.args, measure=Measure.SAMPLES)
    if name not in JOINS:
        return None
    own = tail == "stack" or (tail == "cat" and not along_batch(call))
    local = {m for v in call.args for m in _held(v, own)} - {Measure.UNIFORM}
    if _has_a_row_each(tail, call.args[0]) and local == {Measure.ENTRY} and along_batch(call):
        return computed(*call.args, measure=Measure.SAMPLES)
    if tail == "cat" and call.args[0].rows and rows.collated(call):
        return computed(*call.args, measure=Measure.SAMPLES).but(rows=True)
    if tail in ("cat", "concatenate") and call.args[0].rows:  # of each sample some, end to end
        return computed(*call.args, measure=Measure.PICKED)
    whole = computed(*call.args, measure=local.pop() if len(local) == 1 else None)
    entries = [part for thing in call.args[0].things for part in parts_of(thing)]
    return batch_axis.joined(entries, call, tail == "stack", whole)


def _on_entries(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    """A function of a tensor with entries of samples, None when it is not followed."""
    first = call.args[0]
    if tail in measures.OPERATIONS:  # `torch.maximum(bound, x)`
        first = next((v for v in call.args if v.measure in measures.ENTRIES), first)
    if first.measure not in measures.ENTRIES:
        return None
    if tail in counts.PICKS or (tail == "where" and len(call.args) == 1):
        return picked(call, call.args)
    if tail in PACKS:  # the entries, and what is not followed
        part = computed(*call.args, measure=Measure.PICKED)
        rest = part.but(measure=Measure.MIXED)
        return part.but(things=(Thing(Kind.TUPLE, call.site, items=(part, rest, rest, rest)),))
    if tail in counts.SIZES:
        return counts.size(m, f, first, call.site)
    if tail == "count_nonzero" and len(call.args) == 1 and not call.kwargs:
        counted = counts.without_gradient(computed(first, measure=Measure.SUM))
        return counts.tally(m, f, counted, call.site)
    known = batch_axis.order(m, f, tail, call, first) or batch_axis.along(tail, call, 1, first)
    if known is not None:
        return known
    if mixes_samples(tail, call, 1, first):
        mixed = computed(*call.args, *call.kwargs.values(), measure=Measure.MIXED)
        return pair(call, mixed) if gives_pair(tail, call, 1) else mixed
    if tail in measures.ELEMENTWISE_FUNCTIONS:
        values = (*call.args, *call.kwargs.values())
        measure = measures.operated(tail, *values)
        part = counts.compared(f, tail, computed(*call.args, measure=measure))
        return pair(call, part) if gives_pair(tail, call, 1) else part
    return None


def _has_a_row_each(tail: str, entries: Value) -> bool:
    """Whether what is put together is a list of as many rows as there are samples in the batch."""
    every = entries.rows or entries.blocks == 1
    parts = [part for thing in entries.things for part in parts_of(thing)]
    return every and bool(parts) and (tail == "stack" or all(p.blocks == 1 for p in parts))


def _held(value: Value, grown: bool) -> list[Measure]:
    """The measures of a list's entries, also of a ``grown`` list, or of the value itself."""
    entries = [entry for thing in value.things for entry in thing.items or ()]
    if grown and value.of(Kind.TUPLE, Kind.ITERATOR) == value.things:
        entries = [part for thing in value.things for part in parts_of(thing)]
    return [entry.measure for entry in entries] if entries else [flat_measure(value)]


def _counted(call: Call) -> bool:
    """Whether a new tensor gets one row per sample of a batch: ``ones(x.shape)``."""
    place = rows.LENGTHS.get(call.name.rpartition(".")[2], 0)
    shapes = (v for v in call.args[1 : place + 1] if v.of(Kind.TUPLE))
    given = (*call.args[:1], *shapes, *call.kwargs.values())
    return any(is_batch_size(v) or (v.measure is Measure.SAMPLES and not v.axis) for v in given)


def is_batch_size(value: Value) -> bool:
    """A number of samples, or a shape that begins with one."""
    return rows.first_length(value).measure is Measure.COUNT


def mixes_samples(name: str, call: Call, given: int, value: Value) -> bool:
    """Whether a call looks along the batch; ``given``: how many arguments come before its own."""
    if name in measures.MOVES_ROWS:
        return axis_counts.moves_samples(name, call, given, value)
    place = {**measures.EXTREMES, **measures.RANKINGS, **measures.ALONG_AXES}.get(name)
    if place is None:
        return False
    axis = call.arg(place + given, "dim") or call.arg(place + given, "axis")
    if name in measures.ALONG_AXES:
        return axis is not None and axis_counts.perhaps_samples(value, measures.axis_of(axis))
    if value.axis or measures.mixes_samples(name, axis):
        return True
    return axis is not None and axis_counts.counted(value, axis.const) == value.axis


def gives_pair(name: str, call: Call, given: int) -> bool:
    """Whether a call gives values and indices: rankings always, extremes along an axis."""
    along = name in ("max", "min") and (len(call.args) > given or "dim" in call.kwargs)
    return along or name in ("topk", "sort")


def pair(call: Call, part: Value) -> Value:
    """``values, indices`` of max, topk, sort."""
    return Value((Thing(Kind.TUPLE, call.site, items=(part, part)),), part.deps, part.measure)
