"""Where the batch axis of a tensor is, and what reductions along other axes leave of it.

`x.transpose(0, 1)` has its samples elsewhere: along an axis of it nothing is known to be of one
sample, while what takes all entries (a criterion, `x.mean()`) is as it was. A value that is
`turned` says so. What is not listed here keeps the axis where it was or loses its measure.
"""

from __future__ import annotations

import ast

from ddpify.facts import measures
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_measure
from ddpify.facts.values import Kind, Measure, Thing, Value

SWAPS = frozenset("transpose transpose_ swapaxes swapdims movedim moveaxis".split())
FIRST = frozenset({"permute", "view", "reshape"})  # the first number says what the first axis is
FLATTENS = frozenset({"view", "reshape", "flatten", "ravel"})
TURNS = frozenset({"t", "t_", "T", "mT", "H", "mH", "rot90", "unsqueeze"}) | SWAPS | FIRST
# Reductions whose results say nothing of the sum over the batch: along another axis only.
REDUCTIONS = {"norm": 1, "vector_norm": 1, "var": 0, "std": 0, "prod": 0, "logsumexp": 0} | {
    name: 0 for name in ("amax", "amin", "any", "all", "cumsum", "cumprod")
}
SUMS_OF = (Measure.SAMPLES, Measure.SUM)  # no sample's gradient depends on how many there are
PRODUCTS = frozenset({"bmm", "matmul", "mm"})


def moved(name: str, call: Call | None, given: int, value: Value, result: Value) -> Value:
    """``result`` of ``value.name(...)``; ``given``: how many arguments come before its own."""
    if value.turned and name in FLATTENS and _flattens(name, call, given):
        return result.but(turned=False)  # one axis with all entries
    if value.measure is Measure.ENTRY and name == "unsqueeze":
        axis = call.arg(given, "dim") if call is not None else None
        return result.but(blocks=1 if axis is not None and axis.const == 0 else 0)
    if name not in TURNS or value.measure not in measures.ENTRIES or result.turned:
        return result
    return result.but(turned=True, rows=False) if _turns(name, call, given) else result


def _flattens(name: str, call: Call | None, given: int) -> bool:
    numbers = [v.const for v in call.args[given:]] if call is not None else [None]
    return numbers == ([-1] if name in FIRST else []) and not (call and call.kwargs)


def _turns(name: str, call: Call | None, given: int) -> bool:
    if call is None or (name not in SWAPS and name not in FIRST and name != "unsqueeze"):
        return True
    numbers = call.args[given:]
    numbers = (numbers[0].things[0].items or ()) if numbers and numbers[0].things else numbers
    first = numbers[0] if numbers else None
    if name == "unsqueeze":
        axis = call.arg(given, "dim")
        return axis is None or not isinstance(axis.const, int) or axis.const == 0
    if name in SWAPS:  # with arguments by name, or counted from the end, it may be any axis
        return len(numbers) < 2 or not all(_behind(number) for number in numbers)
    if name == "permute":
        return first is None or first.const != 0
    return first is not None and isinstance(first.const, int) and first.const >= 0


def _behind(axis: Value) -> bool:
    """An axis that is certainly not the first one."""
    return isinstance(axis.const, int) and axis.const > 0


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
    return result.but(turned=True, rows=False)


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
    axes = axis if isinstance(axis, tuple) else (axis,)
    kept = bool(axes) and all(isinstance(a, int) and a > 0 for a in axes) and not value.turned
    values = (value, *call.args, *call.kwargs.values())
    return computed(*values, measure=value.measure if kept else Measure.MIXED)


def products(left: Value, right: Value, batched: bool) -> Measure | None:
    """The measure of a product of matrices, one each per sample where ``batched`` (``bmm``).

    Else the rows of the left one are multiplied with what is the same for all samples.
    """
    pair = (flat_measure(left), flat_measure(right))
    if Measure.SAMPLES not in pair:
        return None
    fits = set(pair) <= {Measure.SAMPLES, Measure.UNIFORM} and not (left.turned or right.turned)
    whole = batched or pair == (Measure.SAMPLES, Measure.UNIFORM)
    return Measure.SAMPLES if fits and whole else Measure.MIXED


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
            measure=Measure.SAMPLES if follow and _own(part) else Measure.MIXED, turned=part.turned
        )
        for part in parts or ()
    )
    return Value((Thing(Kind.TUPLE, call.site, items=items),), unlike.deps)


def _own(inputs: Value) -> bool:
    return inputs.measure is Measure.SAMPLES
