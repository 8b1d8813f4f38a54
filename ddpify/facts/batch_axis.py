"""Where the batch axis of a tensor is, and what reductions along other axes leave of it.

`x.transpose(0, 1)` and `torch.stack(steps)` have their samples elsewhere, which a value's `axis`
says. Where it is not known, nothing along an axis is known to be of one sample, while what takes
all entries (a criterion, `x.mean()`) is as it was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts import axis_counts, measures, rows
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_measure
from ddpify.facts.padding import filling
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame
from ddpify.facts.values import PERHAPS_ONE, UNKNOWN_AXIS, Kind, Measure, Thing, Value

MOVES = frozenset({"movedim", "moveaxis"})
SWAPS = frozenset("transpose transpose_ swapaxes swapdims".split()) | MOVES
FIRST = frozenset({"permute", "view", "reshape"})  # the first number says what the first axis is
FLATTENS = frozenset({"view", "reshape", "flatten", "ravel"})
TURNS = frozenset({"t", "t_", "T", "mT", "H", "mH", "rot90", "unsqueeze"}) | SWAPS | FIRST
# What leaves samples along another axis than the first where they are.
ALIKE = rows.ENTRYWISE | rows.WITH_OTHER | measures.OF_EACH_NUMBER
# What goes along an axis, its place behind the tensor, and says nothing of the sum over the batch:
# of samples one by one along another axis only.
REDUCTIONS = {
    **dict.fromkeys("norm vector_norm kthvalue quantile diff".split(), 1),
    **dict.fromkeys("cosine_similarity take_along_dim repeat_interleave".split(), 1),
    **dict.fromkeys("var std prod logsumexp amax amin any all median nanmedian mode".split(), 0),
    **dict.fromkeys("cumsum cumprod logcumsumexp cummax cummin glu unfold".split(), 0),
    **dict.fromkeys("select narrow index_select unflatten".split(), 0),
    "pairwise_distance": 4,  # behind all that it is given
}
DEFAULTS = {"cosine_similarity": 1, "pairwise_distance": -1, "glu": -1}
# Of one axis, which may be all that there is, the last is that of the samples.
RUNNING = frozenset("cumsum cumprod logcumsumexp cummax cummin diff select narrow".split())
# Of these another argument has an entry, or entries, for each sample, too.
WITH_OTHERS = frozenset({"cosine_similarity", "pairwise_distance", "take_along_dim"})
PAIRS = frozenset("median nanmedian mode kthvalue cummax cummin".split())
SUMS_OF = (Measure.SAMPLES, Measure.SUM)  # no sample's gradient depends on how many there are
ORDER, SORTS = "torch.argsort", frozenset({"sort", "argsort"})
REDUCES = frozenset({"sum", "mean"})  # see `left_of`


def moved(name: str, call: Call | None, given: int, value: Value, result: Value) -> Value:
    """``result`` of ``value.name(...)``; ``given``: how many arguments come before its own."""
    placed = _placed(name, call, given, value, result)
    return axis_counts.behind(name, call, given, value, placed)


def _placed(name: str, call: Call | None, given: int, value: Value, result: Value) -> Value:
    if value.axis and name in FLATTENS and _flattens(name, call, given):
        return result.but(axis=0)  # one axis with all entries
    if value.measure is Measure.ENTRY and name == "unsqueeze":
        axis = call.arg(given, "dim") if call is not None else None
        return result.but(blocks=1 if axis is not None and axis.const == 0 else 0)
    if value.measure not in measures.ENTRIES or value.of(Kind.TUPLE, Kind.ITERATOR):
        return result  # a list is put together: see `joined`
    if name in TURNS:
        place = _place(name, call, given, value)
        if name in axis_counts.SHAPES and call and axis_counts.takes_apart(call, given, value):
            place = UNKNOWN_AXIS
        return result.but(axis=place, rows=False) if place else result.but(axis=0)
    numbers = _numbers(call, given) if call is not None and name == "expand" else []
    if numbers and numbers[0] not in (None, -1, 1):  # `x.expand(2, -1, -1)`: a new axis before it
        return result.but(axis=UNKNOWN_AXIS, rows=False)
    kept = result.axis <= 0 or name in ALIKE or result.measure not in measures.ENTRIES
    return result if kept or name in REDUCES else result.but(axis=UNKNOWN_AXIS)


def _flattens(name: str, call: Call | None, given: int) -> bool:
    numbers = [v.const for v in call.args[given:]] if call is not None else [None]
    return numbers == ([-1] if name in FIRST else []) and not (call and call.kwargs)


def _place(name: str, call: Call | None, given: int, value: Value) -> int:
    """Where the axis of the samples is after a call that moves axes."""
    numbers, axis = _numbers(call, given) if call is not None else [], value.axis
    if axis == UNKNOWN_AXIS or not numbers:
        same = name in FIRST and name != "permute" and not axis and call is not None
        return axis if same else UNKNOWN_AXIS
    if name == "unsqueeze":
        return _lifted_to(numbers[0], axis, value.axes)
    if name in SWAPS:  # with arguments by name, or counted from the end, it may be any axis
        return _swapped(name, [_from_front(value, number) for number in numbers], axis)
    if name == "permute":
        known = all(number is not None and number >= 0 for number in numbers[: axis + 1])
        return numbers.index(axis) if axis in numbers and (known or axis) else UNKNOWN_AXIS
    first = numbers[0]
    whole = not axis and name in FIRST and (first is None or first < 0)
    return 0 if whole else UNKNOWN_AXIS


def _numbers(call: Call, given: int) -> list[int | None]:
    """The numbers that a call is given, also as a tuple; None for one that is not known."""
    values = call.args[given:] or tuple(v for k, v in call.kwargs.items() if k == "dim")
    values = (values[0].things[0].items or ()) if values and values[0].things else values
    return [v.const if isinstance(v.const, int) else None for v in values]


def _lifted_to(new: int | None, axis: int, axes: int) -> int:
    if new is not None and new < -1 and axes:  # counted from behind: of what has one, it is first
        new = new + axes + 1 if axes > 0 else None
    if new is None:
        return UNKNOWN_AXIS
    return axis + 1 if 0 <= new <= axis else axis if new == -1 or not axis else UNKNOWN_AXIS


def _from_front(value: Value, number: int | None) -> int | None:
    """``-2`` of a tensor with three axes is the second."""
    seen = axis_counts.counted(value, number)
    return seen if isinstance(seen, int) else None


def _swapped(name: str, numbers: list[int | None], axis: int) -> int:
    one, other = numbers[:2] if len(numbers) == 2 else (None, None)
    if one is None or other is None or one < 0 or other < 0:
        return UNKNOWN_AXIS
    if axis not in (one, other):
        return axis if name not in MOVES or not axis else UNKNOWN_AXIS
    return UNKNOWN_AXIS if name in MOVES else other if axis == one else one


def joined(entries: Iterable[Value], call: Call, stacks: bool, result: Value) -> Value:
    """``torch.cat(entries)``: as these are, or ``torch.stack(entries)`` with an axis more."""
    own = [entry for entry in entries if entry.measure in measures.ENTRIES]
    if result.measure not in measures.ENTRIES or not own:
        return result
    places = {entry.axis for entry in own}
    place = places.pop() if len(places) == 1 else UNKNOWN_AXIS
    most = max(entry.axes for entry in own)
    axes = most if most or any(entry.axes == 0 for entry in own) else PERHAPS_ONE
    if not stacks:
        return result.but(axis=place, axes=axes)
    made = _stacked(place, axes, call, result)
    return made.but(axes=axis_counts.lifted(axes, made.axis > place))


def _stacked(place: int, axes: int, call: Call, result: Value) -> Value:
    """A new axis, before that of the samples unless told otherwise."""
    new = call.arg(1, "axis" if "axis" in call.kwargs else "dim")
    number = new.const if new is not None and isinstance(new.const, int) else None
    number = 0 if new is None else number
    return result.but(axis=_lifted_to(number, place, axes) if place >= 0 else UNKNOWN_AXIS)


def seen_from(axis: int, reduced: object) -> object:
    """An axis, or axes, of a reduction as they would be if the samples lay along the first."""
    if not axis or reduced is None:
        return reduced
    axes = reduced if isinstance(reduced, tuple) else (reduced,)
    if axis < 0 or not all(isinstance(one, int) and one >= 0 for one in axes):
        return "unknown"
    return 0 if axis in axes else 1


def order(m: Machine, f: Frame, name: str, call: Call, value: Value) -> Value | None:
    """``lengths.sort(0)``: of what loaders give, an order that has each sample once; else None.

    What outputs are sorted by compares them. Behind a ``collate_fn`` of the project's, samples that
    have lengths are as long as the longest of their batch, which a mean over all entries is not of.
    """
    again = is_order(value)
    if name not in SORTS or value.axis or not (again or value.measure is Measure.SAMPLES):
        return None
    if computed(value).dep(Kind.FORWARD) or not rows.by_torch(computed(value)):
        return None
    mixed = computed(value, *call.args, *call.kwargs.values(), measure=Measure.MIXED)
    made = m.make(Kind.UNKNOWN, f, call.site, ORDER)
    places = Value((made,), mixed.deps, Measure.MIXED)
    if name == "argsort":
        return places
    return mixed.but(things=(Thing(Kind.TUPLE, call.site, items=(mixed, places)),))


def is_order(value: Value) -> bool:
    """Whether a value is an order of all samples of a batch."""
    return bool(value.things) and all(thing.name == ORDER for thing in value.things)


def left_of(axis: int, reduced: object, call: Call, given: int) -> int:
    """Where the axis of the samples is behind a reduction along others."""
    axes = reduced if isinstance(reduced, tuple) else (reduced,)
    kept = call.arg(given + 1, "keepdim")
    if axis <= 0:
        return axis
    if kept is not None and not kept.known:
        return UNKNOWN_AXIS
    gone = [one for one in axes if isinstance(one, int) and one < axis]
    return axis - (0 if kept is not None and kept.const else len(gone))


def entry(m: Machine, f: Frame, value: Value, index: ast.expr, given: Value) -> Value | None:
    """``steps[t]``, ``steps[:, :, 0]`` where the samples lie behind the first axis; else None."""
    if value.axis <= 0 or value.measure not in measures.ENTRIES or value.things:
        return None
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    counted = any(not isinstance(part, (ast.Slice, ast.Constant)) for part in parts)
    if counted and filling(value) and not f.no_grad:  # as many as a rank's own longest sample
        return computed(value, given, measure=Measure.MIXED)
    axis, here = value.axis, 0
    for part in parts:
        if isinstance(part, ast.Slice):
            fits = here != value.axis or not (part.lower or part.upper or part.step)
            here += 1
        elif isinstance(part, ast.Constant) and part.value is None:
            fits, axis = True, axis + (1 if here <= value.axis else 0)
        else:
            number = m.values.get(m.site(f, part), value)
            single = isinstance(number.const, int) or bool(number.of(Kind.INDEX))
            fits = single and here != value.axis
            axis, here = axis - (1 if here < value.axis else 0), here + 1
        if not fits:
            return None
    return computed(value, given, measure=value.measure).but(axis=axis)


def keeps(index: ast.Tuple) -> bool:
    """``x[:, 0]`` has an entry per sample, ``x[0, :]`` is one of them."""
    first = index.elts[0] if index.elts else None
    whole = isinstance(first, ast.Slice) or (isinstance(first, ast.Constant) and lifted(index))
    return whole or (isinstance(first, ast.Constant) and first.value is ...)


def indexed(index: ast.expr, result: Value) -> Value:
    """What an index leaves, with the batch axis further behind where it puts one before it."""
    if result.measure is Measure.ENTRY:
        return result.but(blocks=1 if lifted(index) else 0)
    if result.measure not in measures.ENTRIES or not lifted(index):
        return result
    return result.but(axis=result.axis + 1 if result.axis >= 0 else UNKNOWN_AXIS, rows=False)


def end_of(index: ast.expr) -> ast.expr | None:
    """``n`` of ``x[:n]`` and ``x[:n, 0]``."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    whole = isinstance(first, ast.Slice) and first.lower is None and first.step is None
    return first.upper if whole and isinstance(first, ast.Slice) else None


def lifted(index: ast.expr) -> bool:
    """``x[None]``: a new axis before that of the batch."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    return isinstance(first, ast.Constant) and first.value is None


def along(name: str, call: Call, given: int, value: Value) -> Value | None:
    """``x.norm(2, dim=1)``: an entry per sample; None when it is not such a reduction."""
    place = REDUCTIONS.get(name)
    if place is None or value.measure not in measures.ENTRIES:
        return None
    names = [n for n in ("dim", "axis") if n in call.kwargs]
    axis = measures.axis_of(call.arg(place + given, names[0] if names else "dim"))
    axis = DEFAULTS.get(name) if axis is None else axis
    seen = axis_counts.counted(value, axis)
    axes = seen if isinstance(seen, tuple) else (seen,)
    behind = all(isinstance(a, int) and (a > 0 or (a < 0 and name not in RUNNING)) for a in axes)
    others = (*call.args[given:], *call.kwargs.values())
    kept = bool(axes) and behind and not value.axis and _as_one(name, value, others)
    made = computed(value, *others, measure=value.measure if kept else Measure.MIXED)
    if name not in PAIRS or axis is None:
        return made
    return made.but(things=(Thing(Kind.TUPLE, call.site, items=(made, made)),))


def _as_one(name: str, value: Value, others: tuple[Value, ...]) -> bool:
    """Whether what else is given is the same for all samples, or goes with each of them."""
    local = {flat_measure(other) for other in others} - {Measure.UNIFORM}
    if name in WITH_OTHERS:
        return local <= {value.measure} and not measures.crossed((value, *others))
    return not local


def gradients(call: Call) -> Value:
    """``torch.autograd.grad(outputs, inputs, grad_outputs)``: of each sample by its own input.

    Of a mean they are the smaller the more samples there are, which a norm of them is not.
    """
    outputs, inputs = call.arg(0, "outputs"), call.arg(1, "inputs")
    seed = call.arg(2, "grad_outputs")
    values = (*call.args, *call.kwargs.values())
    unlike = computed(*values)
    if outputs is None or inputs is None:
        return unlike
    weighed = seed is None or flat_measure(seed) in (Measure.SAMPLES, Measure.UNIFORM)
    follow = weighed and not outputs.things and outputs.measure in SUMS_OF
    parts = inputs.things[0].items if inputs.of(Kind.TUPLE) else (inputs,)
    items = tuple(
        unlike.but(
            measure=Measure.SAMPLES if follow and _own(part) else Measure.MIXED, axis=part.axis
        )
        for part in parts or ()
    )
    return Value((Thing(Kind.TUPLE, call.site, items=items),), unlike.deps)


def _own(inputs: Value) -> bool:
    return inputs.measure is Measure.SAMPLES
