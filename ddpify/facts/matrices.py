"""Products and distances of matrices: of one sample each, or of rows with what is shared by all.

Rows of samples with rows of samples are all pairs of them, unless there is an axis for the samples
before those of the two matrices. ::

    torch.matmul(flat, codes.t())            # a row for each
    torch.cdist(x.view(-1, 4, 2), y3)        # (samples, 4, 2) with (samples, 5, 2)
    torch.cdist(features, features)          # each sample with each
"""

from __future__ import annotations

from collections.abc import Sequence

from ddpify.facts import rows, shared_shapes
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_measure
from ddpify.facts.measures import crossed
from ddpify.facts.protocol import Machine
from ddpify.facts.shared_shapes import Lengths
from ddpify.facts.values import PERHAPS_ONE, UNKNOWN_AXIS, Kind, Measure, Value
from ddpify.source import Site

PRODUCTS = {"bmm": 3, "mm": 2, "matmul": 0}  # how many axes both have, and what they give
DISTANCES = frozenset({"cdist"})
OPERATOR, EINSUM = "@", "torch.einsum"
MATRIX = 2


def function(m: Machine, name: str, call: Call) -> Value | None:
    """``torch.matmul(a, b)``, ``a.matmul(b)``, ``torch.cdist(a, b)``; None of anything else."""
    if call.name == EINSUM:
        return summed(call)
    own = (call.receiver,) if call.name.startswith(".") and call.receiver is not None else ()
    given = (*own, *call.args)
    if len(given) < 2 or (name not in PRODUCTS and (own or name not in DISTANCES)):
        return None
    site = call.arg_sites[1 - len(own)] if len(call.arg_sites) > 1 - len(own) else None
    made = product(m, name, given[0], given[1], site)
    others = (*given[2:], *call.kwargs.values())
    shared = all(flat_measure(other) is Measure.UNIFORM for other in others)
    return made if made is None or shared else computed(*given, *others)


def product(m: Machine, name: str, left: Value, right: Value, site: Site | None) -> Value | None:
    """What ``left @ right`` gives; ``site``: where the right one is. None where none has samples.

    A vector on the right takes an axis away, which is not taken for granted of a weight.
    """
    pair = (flat_measure(left), flat_measure(right))
    if Measure.SAMPLES not in pair:
        return None
    mixed = computed(left, right, measure=Measure.MIXED)
    if not set(pair) <= {Measure.SAMPLES, Measure.UNIFORM} or left.axis or right.axis:
        return mixed
    if name == "bmm" or _batched(left, right):
        return mixed.but(measure=Measure.SAMPLES, axes=PRODUCTS.get(name) or left.axes)
    if pair[0] is not Measure.SAMPLES or pair[1] is Measure.SAMPLES:
        return mixed
    table = shared_shapes.of_site(m, site)
    if name in DISTANCES:
        return _distances(left, table, mixed)
    behind = table is not None and len(table) > MATRIX and left.axes < len(table)
    made = mixed.but(measure=Measure.SAMPLES, axes=PRODUCTS.get(name) or _axes(name, left, table))
    return made.but(axis=UNKNOWN_AXIS, axes=0) if behind else made


def summed(call: Call) -> Value | None:
    """``torch.einsum("bd,nd->bn", rows, codes)``: all samples' along one letter; else None."""
    said = call.args[0].const if call.args else None
    operands = call.args[1:]
    if not isinstance(said, str) or call.star or call.kwargs:
        return None
    terms, arrow, result = said.replace(" ", "").partition("->")
    letters = terms.split(",")
    if (
        not arrow
        or len(letters) != len(operands)
        or not (terms + result).replace(",", "").isalpha()
    ):
        return None
    own = [(v, t) for v, t in zip(operands, letters, strict=True) if v.measure is Measure.SAMPLES]
    named = {term[value.axis] for value, term in own if 0 <= value.axis < len(term)}
    rest = [v for v in operands if v.measure is not Measure.SAMPLES]
    if len(named) != 1 or any(v.axis < 0 or v.axis >= len(t) or v.things for v, t in own):
        return None
    letter = named.pop()
    shared = all(flat_measure(value) is Measure.UNIFORM for value in rest)
    if not shared or result.count(letter) != 1 or _elsewhere(letter, operands, letters):
        return None
    made = computed(*operands, measure=Measure.SAMPLES)
    return made.but(axis=result.index(letter), axes=len(result))


def _elsewhere(letter: str, operands: Sequence[Value], letters: Sequence[str]) -> bool:
    """Whether the samples' letter is one of an axis of something else, too."""
    pairs = zip(operands, letters, strict=True)
    return any(t.count(letter) != (1 if v.measure is Measure.SAMPLES else 0) for v, t in pairs)


def _batched(left: Value, right: Value) -> bool:
    """Whether both have an axis for the samples before those of a matrix."""
    both = (left, right)
    plain = not any(value.of(Kind.TUPLE, Kind.ITERATOR) for value in both)
    several = all(v.measure is Measure.SAMPLES and v.axes > MATRIX for v in both)
    return plain and several and not crossed(both)


def _distances(left: Value, table: Lengths | None, mixed: Value) -> Value:
    """Of samples, or of several rows of each, to the rows of a table."""
    fits = table is not None and MATRIX <= len(table) <= left.axes
    fits = fits or (table is not None and len(table) == MATRIX and left.axes == 0)
    if not fits:
        return mixed
    return mixed.but(measure=Measure.SAMPLES, axes=left.axes, rows=rows.has_rows(left))


def _axes(name: str, left: Value, table: Lengths | None) -> int:
    if table is not None and len(table) > 1:
        return left.axes
    if table is not None:
        return left.axes - 1 if left.axes > 1 else PERHAPS_ONE
    if left.axes > MATRIX or (left.axes == 0 and name == OPERATOR):
        return 0
    return PERHAPS_ONE
