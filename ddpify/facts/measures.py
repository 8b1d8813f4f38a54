"""Arithmetic on measures: what adding, multiplying and dividing sums, counts and means gives.

Decides later how ranks combine a number: sums and counts are added, means are averaged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.joining import flat_measure, is_zero
from ddpify.facts.values import UNKNOWN_AXIS, Measure, Value

U, SAMPLES, COUNT = Measure.UNIFORM, Measure.SAMPLES, Measure.COUNT
SUM, MEAN, PER_COUNT, MIXED = Measure.SUM, Measure.MEAN, Measure.PER_COUNT, Measure.MIXED
PICKED, RATIO, ENTRY = Measure.PICKED, Measure.RATIO, Measure.ENTRY

ADDITIVE = (COUNT, SUM)
ENTRIES = (SAMPLES, PICKED)
# What a criterion gives for picked entries where it gives this for samples.
OF_PICKED = {SUM: SUM, MEAN: RATIO, SAMPLES: PICKED}


def binary(op: ast.operator, left: Value, right: Value) -> Measure:
    """The measure of ``left op right``."""
    a, b = left.measure, right.measure
    if a in (U, ENTRY) and b in (U, ENTRY):  # whatever is done with it, it is of one sample
        return ENTRY if ENTRY in (a, b) else U
    if SAMPLES in (a, b) or PICKED in (a, b):
        return MIXED if crossed((left, right)) else entries(a, b)
    if isinstance(op, (ast.Add, ast.Sub)):
        return _add(left, right)
    if isinstance(op, ast.Mult):
        return _multiply(a, b)
    if isinstance(op, (ast.Div, ast.FloorDiv)):
        return _divide(a, b)
    return MIXED


def entries(*measures: Measure) -> Measure:
    """The measure of what is computed entry by entry: constants go with any entries."""
    present = set(measures) - {U}
    return present.pop() if present in ({SAMPLES}, {PICKED}) else MIXED


def operated(name: str, *values: Value) -> Measure:
    """The measure of ``first.name(*others)`` for entries: of ``x.sub(y)`` that of ``x - y``."""
    found = tuple(map(flat_measure, values))
    if name.removesuffix("_") not in OPERATIONS:
        return found[0]
    return MIXED if crossed(values) else entries(*found)


def crossed(values: Iterable[Value]) -> bool:
    """Whether samples lie along different axes: ``x[:, None] - y[None]``, all pairs of them.

    Shapes are compared from behind: so do ``x.view(-1) - y.view(-1, 1)``.
    """
    tensors = [value for value in values if value.measure in ENTRIES]
    places = {v.axis for v in tensors if v.axis != UNKNOWN_AXIS}
    behind = {v.axes - v.axis for v in tensors if v.axis != UNKNOWN_AXIS and v.axes > 0}
    return len(places) > 1 or (len(behind) > 1 and all(v.axes > 0 for v in tensors))


def compared(given: Iterable[Measure]) -> Measure | None:
    """The measure of a comparison, None when it is not one per entry."""
    present = set(given) - {U}
    return present.pop() if present in ({SAMPLES}, {PICKED}) else None


def _add(left: Value, right: Value) -> Measure:
    a, b = left.measure, right.measure
    if a is b:
        return a
    if a in ADDITIVE and b in ADDITIVE:
        return SUM
    if U in (a, b):
        other, uniform = (b, left) if a is U else (a, right)
        return other if is_zero(uniform) or other in (MEAN, RATIO) else MIXED
    return RATIO if {a, b} == {MEAN, RATIO} else MIXED


def _multiply(a: Measure, b: Measure) -> Measure:
    pair = {a, b}
    if U in pair:
        return b if a is U else a
    if pair == {MEAN, COUNT}:
        return SUM
    if PER_COUNT in pair and (pair & {SUM, COUNT}):
        return MEAN
    return MIXED


def _divide(a: Measure, b: Measure) -> Measure:
    if b is U:
        return a
    if a is U:
        return PER_COUNT if b is COUNT else MIXED
    if a in ADDITIVE and b in ADDITIVE:  # ranks have as many samples, not as many positives
        return MEAN if b is COUNT else RATIO
    return MIXED


# Functions of one number, in torch, torch.special or torch.nn.functional: whatever the shape, entry
# by entry.
OF_EACH_NUMBER = frozenset(
    """rsqrt reciprocal expm1 exp2 log1p log2 log10 sin cos tan asin acos atan sinh cosh asinh acosh
    atanh erf erfc erfinv lgamma digamma logit sign sgn ceil trunc frac isnan isinf isfinite
    nan_to_num absolute negative positive fix clip clamp_min clamp_max deg2rad rad2deg sinc angle
    real imag conj entr expit gammaln i0 i1 erfcx ndtr ndtri log_ndtr relu6 leaky_relu elu selu celu
    silu mish gelu hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink softsign
    threshold""".split()
)
# Operations on entries of several tensors.
OPERATIONS = frozenset(
    """add sub mul div pow eq ne lt gt le ge max min where subtract multiply divide true_divide
    floor_divide fmod remainder maximum minimum fmax fmin atan2 arctan2 hypot float_power lerp
    addcmul addcdiv xlogy xlog1py logaddexp logaddexp2 copysign heaviside ldexp complex polar rsub
    greater greater_equal less less_equal not_equal logical_and logical_or logical_xor
    masked_fill""".split()
)
KEEPS_BATCH_AXIS = frozenset(
    """to cuda cpu float double half long int bool type type_as detach detach_ clone contiguous
    data view reshape view_as flatten squeeze unsqueeze permute transpose t eq ne lt gt le ge
    eq_ argmax argmin max min topk sort softmax log_softmax sigmoid tanh relu exp log sqrt pow
    abs clamp clamp_ add sub mul div add_ sub_ mul_ div_ neg round floor requires_grad_
    pin_memory numpy tolist expand gather masked_fill logical_and logical_or logical_not
    bfloat16 byte short expand_as repeat chunk split unbind copy astype float32 ravel square flip
    roll fill_ zero_ uniform_ normal_ random_ scatter scatter_""".split()
).union(OF_EACH_NUMBER, OPERATIONS, (f"{name}_" for name in OF_EACH_NUMBER | OPERATIONS))
CREATES = frozenset(
    "randn rand zeros ones full empty randint normal Tensor FloatTensor LongTensor".split()
)
KEEPS_ANY = frozenset(
    """item detach cpu cuda to float double half long int clone data numpy tolist astype
    type_as""".split()
)
ELEMENTWISE_FUNCTIONS = frozenset(
    """softmax log_softmax sigmoid relu tanh max min argmax argmin eq ne topk abs exp log sqrt
    pow clamp round flatten squeeze unsqueeze where one_hot pad interpolate normalize gelu
    logical_and logical_or square logsigmoid softplus dropout adaptive_max_pool2d
    adaptive_avg_pool2d max_pool2d avg_pool2d Tensor FloatTensor DoubleTensor
    LongTensor from_numpy as_tensor tensor zeros_like ones_like full_like rand_like
    randn_like empty_like gather flip roll sort argsort gumbel_softmax
    alpha_dropout dropout2d dropout3d""".split()
).union(OF_EACH_NUMBER, OPERATIONS)
# What a sum over samples that is an array stays, however its entries are laid out.
KEEPS_SUM = frozenset("reshape view flatten ravel squeeze unsqueeze t transpose permute".split())
# Functions that look along an axis, and where it is given, the tensor not counted.
EXTREMES = {"max": 0, "min": 0, "argmax": 0, "argmin": 0, "scatter": 0, "scatter_": 0}
RANKINGS = {"topk": 1, "sort": 0, "argsort": 0}
# What stays a tensor as large, of which an entry depends on all along an axis.
ALONG_AXES = {
    **dict.fromkeys("softmax log_softmax softmin gather".split(), 0),
    "normalize": 1,
    "gumbel_softmax": 3,
}
# What gives a sample's place to another one, where it goes along the batch.
MOVES_ROWS = {"flip": 0, "roll": 1}
# What a tensor is, whichever samples it has: attributes, methods and functions.
TRAITS = frozenset(
    """device dtype is_cuda ndim requires_grad layout is_sparse dim ndimension get_device
    is_tensor is_floating_point is_complex element_size itemsize""".split()
)


def along_others(axis: object) -> bool:
    """Whether a reduction leaves the first axis, that of the batch, alone."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    return all(isinstance(one, int) and one > 0 for one in axes)


def mixes_samples(name: str, axis: Value | None) -> bool:
    """Whether a sample's entry depends on the other samples of the batch then.

    Of losses per sample the last axis, which rankings take unless told, is that of the batch.
    """
    if name in EXTREMES:
        return axis is None or (axis.known and axis.const in (None, 0))
    return name in RANKINGS and (axis is None or (axis.known and axis.const in (None, 0, -1)))


def axis_of(value: Value | None) -> object:
    """The axis, or the axes, that a reduction is given; None: it takes all."""
    if value is None or value.known:
        return None if value is None else value.const
    items = value.things[0].items if len(value.things) == 1 else None
    return tuple(i.const for i in items) if items and all(i.known for i in items) else "unknown"


def reduce_samples(measure: Measure, how: str, axis: object) -> Measure:
    """The measure of ``x.sum(...)`` or ``x.mean(...)``; ``axis`` is None when all are reduced."""
    if measure in (U, ENTRY):
        return measure
    if measure in ENTRIES:
        if isinstance(axis, tuple) and along_others(axis):
            return measure
        if axis in (None, 0) or (isinstance(axis, tuple) and 0 in axis):
            mean = MEAN if measure is SAMPLES else RATIO
            return SUM if how == "sum" else mean
        return measure if isinstance(axis, int) else MIXED
    if measure in ADDITIVE and how == "sum":  # of a matrix of sums
        return measure
    return measure if axis is None and measure in (SUM, COUNT, MEAN, RATIO) else MIXED
