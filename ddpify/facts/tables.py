"""What samples look up in a table that is the same for all: a code book, weights of classes.

Along its first axis only: along another one it goes by the place in the batch, too. ::

    torch.index_select(codes, 0, index)
    class_weights.gather(0, labels)
    codes[index]
"""

from __future__ import annotations

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
