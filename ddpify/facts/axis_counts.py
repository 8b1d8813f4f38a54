"""How many axes a tensor of samples has: of one that has a single axis, the last is the samples'.

Most have several, which is taken for granted where nothing is known. `x.view(-1)` has one; behind
what takes an axis away (`x.squeeze()`, `x[:, 0]`, `x.sum(1)`) there may be one left. ::

    terms.view(-1).sum(-1)     # over all samples
    terms.squeeze().sum(-1)    # perhaps
"""

from __future__ import annotations

import ast

from ddpify.facts.events import Call
from ddpify.facts.measures import ENTRIES, MOVES_ROWS, axis_of
from ddpify.facts.values import PERHAPS_ONE, UNKNOWN_AXIS, Kind, Measure, Value

SHAPES = frozenset({"view", "reshape"})
FLAT = frozenset({"flatten", "ravel"})
SAME = frozenset("transpose transpose_ swapaxes swapdims movedim moveaxis T mT H mH".split())
# What has an axis less for the one it goes along, and the place of that axis.
FEWER = {
    **dict.fromkeys("argmax argmin max min any all var std logsumexp".split(), 0),
    **dict.fromkeys("amax amin prod median select".split(), 0),
    **dict.fromkeys(("norm", "vector_norm"), 1),
}
REDUCES = frozenset({"sum", "mean"})  # see `tensor_calls.reduced`
# Of two tensors, a number for each pair of rows.
DISTANCES = frozenset({"cosine_similarity", "pairwise_distance"})
PRODUCTS = frozenset({"mv", "dot", "inner", "tensordot"})
COUNTED = frozenset({"matmul", "mm", "bmm", "cdist", "einsum"})  # see `matrices`
CLASSES = frozenset({"cross_entropy", "nll_loss", *DISTANCES})


def counted(value: Value, axis: object) -> object:
    """An axis, or axes, counted from the front; "unknown" where that may be that of samples."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    if value.measure not in ENTRIES or not any(_from_behind(one) for one in axes):
        return axis
    if value.axes == PERHAPS_ONE:
        return "unknown"
    if value.axes <= 0:
        return axis
    found = tuple(value.axes + one if _from_behind(one) else one for one in axes)
    return found if isinstance(axis, tuple) else found[0]


def _from_behind(axis: object) -> bool:
    return isinstance(axis, int) and axis < 0


def perhaps_samples(value: Value, axis: object) -> bool:
    """Whether what goes along an axis may go along that of the samples, and may not."""
    return value.axis == UNKNOWN_AXIS or counted(value, axis) == "unknown"


def moves_samples(name: str, call: Call, given: int, value: Value) -> bool:
    """``x.flip(0)``, ``x.roll(1, 0)``, ``x.roll(1)``: along the batch, or all entries."""
    axes = call.args[given + MOVES_ROWS[name] :] or tuple(
        v for k, v in call.kwargs.items() if k in ("dim", "dims")
    )
    found = [_numbers_of(axis) for axis in axes]
    known = bool(found) and all(one is not None for one in found)
    return not known or any(
        counted(value, n) in (value.axis, "unknown") for o in found for n in o or ()
    )


def cuts_samples(call: Call, given: int, value: Value) -> bool:
    """``x.chunk(2)`` of one batch: which samples a part has is a rank's own; along the batch."""
    axis = call.arg(given + 1, "dim")
    seen = counted(value, axis.const) if axis is not None else 0
    return value.blocks < 2 and (seen in (value.axis, "unknown") or value.axis == UNKNOWN_AXIS)


def _numbers_of(axis: Value) -> tuple[object, ...] | None:
    seen = axis_of(axis)
    axes = seen if isinstance(seen, tuple) else (seen,)
    return axes if all(isinstance(one, int) for one in axes) else None


def less(value: Value, axis: object, kept: Value | None) -> int:
    """How many axes are left of ``value`` by what goes along ``axis``."""
    if kept is not None and kept.known and kept.const:
        return value.axes
    gone = len(axis) if isinstance(axis, tuple) else 1
    return value.axes - gone if value.axes > gone else PERHAPS_ONE


def behind(name: str, call: Call | None, given: int, value: Value, result: Value) -> Value:
    """``result`` of ``value.name(...)``; ``given``: how many arguments come before its own."""
    if value.measure not in ENTRIES or value.of(Kind.TUPLE, Kind.ITERATOR):
        return result
    pairs = result.of(Kind.TUPLE)
    if result.measure not in ENTRIES and not pairs:
        return result
    axes = _axes(name, call, given, value, result)
    if not pairs:
        return result.but(axes=axes)
    for thing in pairs:  # made here
        thing.items = tuple(part.but(axes=axes) for part in thing.items or ())
    return result


def _axes(name: str, call: Call | None, given: int, value: Value, result: Value) -> int:
    if name in SHAPES and call is not None:
        return _shaped(call, given)
    if name in FLAT:
        first = call.arg(given, "start_dim") if call is not None else None
        whole = first is None or (first.known and first.const == 0)
        last = call.arg(given + 1, "end_dim") if call is not None else None
        behind = first is not None and isinstance(first.const, int) and first.const > 0
        return 0 if last is not None else 1 if whole else first.const + 1 if first and behind else 0
    if name in COUNTED:
        return result.axes
    if name in ("unsqueeze", "unsqueeze_", "one_hot"):
        return lifted(value.axes, result.axis > value.axis)
    if name in ("squeeze", "squeeze_"):
        return 1 if value.axes == 1 else 0 if value.axes > 2 and _told(call, given) else PERHAPS_ONE
    if name in ("t", "t_"):
        return value.axes or 2
    if name == "permute" and call is not None:
        return max(len(call.args) - given, len(_items(call, given))) or value.axes
    if name in CLASSES or name in PRODUCTS:
        return value.axes - 1 if value.axes > 1 else PERHAPS_ONE
    if name in FEWER and call is not None and _goes_along(name, call, given):
        return less(value, 0, call.arg(FEWER[name] + given + 1, "keepdim"))
    known = name in SAME or name in REDUCES or result.axes <= 1 or name in ALIKE
    return result.axes if known else 0


def lifted(axes: int, before: bool) -> int:
    """With one more: ``before`` that of the samples, which may be the last of them still."""
    return axes + 1 if axes > 0 else axes if before else 0


def _told(call: Call | None, given: int) -> bool:
    return call is not None and bool(len(call.args) > given or call.kwargs)


def _goes_along(name: str, call: Call, given: int) -> bool:
    """Whether an axis is given: ``x.max(1)``, no tensor as in ``x.max(other)``."""
    axis = call.arg(FEWER[name] + given, "axis" if "axis" in call.kwargs else "dim")
    return axis is not None and axis.measure is Measure.UNIFORM and axis_of(axis) is not None


def _shaped(call: Call, given: int) -> int:
    lengths = call.args[given:]
    items = _items(call, given)
    if len(lengths) > 1 or items:
        return max(len(lengths), len(items)) if not call.star else 0
    single = lengths[0] if len(lengths) == 1 else None
    if single is None or single.things:
        return 0  # a shape that is kept somewhere
    return 1 if isinstance(single.const, int) or single.measure is Measure.COUNT else PERHAPS_ONE


def takes_apart(call: Call, given: int, value: Value) -> bool:
    """``terms.view(-1, len(x))``, ``scores.squeeze().view(-1, 2)``: samples side by side."""
    lengths = _items(call, given) or call.args[given:]
    if len(lengths) < 2 or lengths[0].measure is Measure.COUNT:
        return False
    if any(one.measure is Measure.COUNT for one in lengths[1:]):
        return True
    wide = any(isinstance(n.const, int) and n.const > 1 for n in lengths[1:])
    return wide and value.axes == PERHAPS_ONE and value.rows


def _items(call: Call, given: int) -> tuple[Value, ...]:
    things = call.args[given].of(Kind.TUPLE) if len(call.args) > given else ()
    return things[0].items or () if len(things) == 1 else ()


def indexed(base: Value, index: ast.expr, result: Value) -> Value:
    """What an index leaves: ``x[:, 0]`` an axis less, ``x[:, None]`` one more."""
    if base.measure not in ENTRIES or result.measure not in ENTRIES:
        return result
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if base.of(Kind.BATCH) and not any(isinstance(part, ast.Slice) for part in parts):
        return result
    if isinstance(index, ast.Slice):
        return result.but(axes=base.axes)
    added = sum(isinstance(part, ast.Constant) and part.value is None for part in parts)
    kept = sum(isinstance(p, ast.Slice) or getattr(p, "value", 0) is ... for p in parts)
    gone = len(parts) - added - kept
    if not isinstance(index, ast.Tuple) and not added:  # `x[mask]`, `x[order]`
        return result.but(axes=base.axes if base.axes == 1 else 0)
    if gone > 1 and not kept:  # `scores[torch.arange(n), labels]`
        gone -= 1
    axes = base.axes + added - gone
    if base.axes <= 0:
        more = lifted(base.axes, result.axis > base.axis)
        axes = base.axes if added == gone else more if added > gone else PERHAPS_ONE
    return result.but(axes=axes if axes > 0 or base.axes <= 0 else PERHAPS_ONE)


# What is computed entry by entry, or along an axis that stays.
ALIKE = frozenset(
    """to cuda cpu float double half long int bool type detach detach_ clone contiguous
    sigmoid tanh relu exp log sqrt pow square abs clamp clamp_ neg round floor add sub mul div
    eq ne lt gt le ge softmax log_softmax normalize cumsum cumprod type_as where masked_fill
    zeros_like ones_like dropout gelu softplus logsigmoid log1p expm1 sort topk gather flip roll
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div
    binary_cross_entropy_with_logits""".split()
)
