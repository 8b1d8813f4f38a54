"""What samples look up in a table that is the same for all: a code book, weights of classes.

Along its first axis only: along another one it goes by the place in the batch, too. ::

    torch.index_select(codes, 0, index)
    class_weights.gather(0, labels)
    codes[index]

What is the same for all samples, repeated once for each of a batch: a row a sample, or a column.

Only where the axis it is repeated along had a length of 1, so that it lies there as the samples do:
of a table of K rows, ``w.repeat(len(x), 1)`` has K for each. ::

    self.token.expand(x.size(0), -1, -1)            # a class token
    self.codes.weight[None].repeat(len(x), 1, 1)    # a code book
    self.query.weight.unsqueeze(1).repeat(1, bs, 1) # the samples along the second axis
"""

from __future__ import annotations

from collections.abc import Sequence

from ddpify.facts import rows, shared_shapes
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_measure
from ddpify.facts.measures import ENTRIES, crossed
from ddpify.facts.protocol import Machine
from ddpify.facts.shared_shapes import Lengths
from ddpify.facts.values import PERHAPS_ONE, Kind, Measure, Value
from ddpify.source import Site

TAKES = frozenset({"gather", "index_select"})


def looked_up(m: Machine, name: str, call: Call, table: Value) -> Value | None:
    """``weights.gather(0, labels)``, ``torch.gather(weights, 0, labels)``; else None."""
    given = 0 if call.receiver is table else 1
    if name not in TAKES or flat_measure(table) is not Measure.UNIFORM:
        return None
    axis, index = call.arg(given, "dim"), call.arg(given + 1, "index")
    values = (table, *call.args, *call.kwargs.values())
    first = axis is not None and axis.known and axis.const == 0
    if not first or index is None or index.measure is not Measure.SAMPLES or index.axis:
        return computed(*values)
    site = call.receiver_site if not given else call.arg_site(0, "input")
    axes = index.axes if name == "gather" else _axes(index, shared_shapes.of_site(m, site))
    made = computed(*values, measure=Measure.SAMPLES).but(axis=0, axes=axes)
    return rows.operands(made, index) if name == "gather" else made.but(rows=rows.has_rows(index))


def part(given: Value) -> Measure:
    """``table[labels, :4]``: rows of a table as samples say, and of each the same part."""
    items = given.things[0].items if len(given.things) == 1 and given.of(Kind.TUPLE) else None
    if items is None:
        return flat_measure(given)
    found = [item for item in items if item.measure is not Measure.UNIFORM]
    if not found:
        return Measure.UNIFORM
    own = items[0] is found[0]
    plain = all(item.measure is Measure.SAMPLES and not item.things for item in found)
    alike = len({(item.axis, item.axes) for item in found}) == 1 and not crossed(found)
    return Measure.SAMPLES if own and plain and alike else Measure.MIXED


def indexed(m: Machine, site: Site, index: Value, result: Value) -> Value:
    """What ``table[index]`` has of axes: those of the index, and of a row of the table."""
    if result.measure not in ENTRIES:
        return result
    if index.things:
        return result.but(axes=PERHAPS_ONE)  # a number of a row, or a part of it
    return result.but(axes=_axes(index, shared_shapes.of_site(m, site)))


def _axes(index: Value, table: Lengths | None) -> int:
    if index.axes <= 0:
        return index.axes if table is None or len(table) == 1 else 0
    if table is None:
        return PERHAPS_ONE if index.axes == 1 else 0
    return index.axes + len(table) - 1


REPEATS = frozenset({"expand", "repeat"})
AS_OTHER = "expand_as"


def for_each(m: Machine, name: str, call: Call, shared: Value) -> Value | None:
    """``shared.expand(len(x), -1)``; None where it is not known to lie as the samples do."""
    if name == AS_OTHER and len(call.args) == 1:
        return _as_other(shared, call.args[0])
    if name not in REPEATS or flat_measure(shared) is not Measure.UNIFORM or call.kwargs:
        return None
    lengths = _lengths(call)
    place = _of_samples(lengths)
    if place is None or call.star or shared.of(Kind.TUPLE, Kind.ITERATOR):
        return None
    # What `expand` is given is the length, unless that is there already.
    if name == "repeat" and not _is_single(m, call, place, len(lengths)):
        return None
    made = computed(shared, *lengths, measure=Measure.SAMPLES)
    own = place == 0 and lengths[place].rows
    return made.but(axis=place, axes=len(lengths), rows=own)


def _as_other(shared: Value, other: Value) -> Value | None:
    """``self.token.expand_as(x)``."""
    plain = not shared.of(Kind.TUPLE, Kind.ITERATOR) and not other.things
    if not plain or flat_measure(shared) is not Measure.UNIFORM:
        return None
    if other.measure is not Measure.SAMPLES:
        return None
    return computed(shared, other, measure=Measure.SAMPLES).but(rows=other.rows)


def _lengths(call: Call) -> Sequence[Value]:
    """What it is given one by one, or as a tuple."""
    things = call.args[0].of(Kind.TUPLE) if len(call.args) == 1 else ()
    return things[0].items or () if things else call.args


def _of_samples(lengths: Sequence[Value]) -> int | None:
    """Where the one length stands that is how many samples there are, or rows of them.

    All that is repeated is alike, so it does not matter how many there are of each.
    """
    places = [n for n, length in enumerate(lengths) if length.measure is not Measure.UNIFORM]
    own = [n for n in places if lengths[n].measure is Measure.COUNT]
    plain = not any(length.things and not length.of(Kind.ARGUMENT) for length in lengths)
    return own[0] if len(places) == len(own) == 1 and plain else None


def _is_single(m: Machine, call: Call, place: int, axes: int) -> bool:
    """Whether the axis there is new, or known to be of length 1."""
    shape = shared_shapes.of_site(m, call.receiver_site)
    if shape is None:
        return False
    at = place - (axes - len(shape))
    return at < 0 or shape[at] == 1
