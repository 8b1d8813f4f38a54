"""Arithmetic on measures: what adding, multiplying and dividing sums, counts and means gives.

Decides later how ranks combine a number: sums and counts are added, means are averaged.
"""

from __future__ import annotations

import ast

from ddpify.facts.values import Measure, Value

U, SAMPLES, COUNT = Measure.UNIFORM, Measure.SAMPLES, Measure.COUNT
SUM, MEAN, PER_COUNT, MIXED = Measure.SUM, Measure.MEAN, Measure.PER_COUNT, Measure.MIXED

ADDITIVE = (COUNT, SUM)


def binary(op: ast.operator, left: Value, right: Value) -> Measure:
    """The measure of ``left op right``."""
    a, b = left.measure, right.measure
    if a is U and b is U:
        return U
    if SAMPLES in (a, b):
        return SAMPLES if (a in (SAMPLES, U) and b in (SAMPLES, U)) else MIXED
    if isinstance(op, (ast.Add, ast.Sub)):
        return _add(left, right)
    if isinstance(op, ast.Mult):
        return _multiply(a, b)
    if isinstance(op, (ast.Div, ast.FloorDiv)):
        return _divide(a, b)
    return MIXED


def _add(left: Value, right: Value) -> Measure:
    a, b = left.measure, right.measure
    if a is b:
        return a
    if a in ADDITIVE and b in ADDITIVE:
        return SUM
    if U in (a, b):
        other, uniform = (b, left) if a is U else (a, right)
        zero = uniform.known and uniform.const == 0
        return other if zero or other is MEAN else MIXED
    return MIXED


def _multiply(a: Measure, b: Measure) -> Measure:
    pair = {a, b}
    if U in pair:
        other = b if a is U else a
        return SUM if other is COUNT else other
    if pair == {MEAN, COUNT}:
        return SUM
    if PER_COUNT in pair and (pair & {SUM, COUNT}):
        return MEAN
    return MIXED


def _divide(a: Measure, b: Measure) -> Measure:
    if b is U:
        return SUM if a is COUNT else a
    if a is U:
        return PER_COUNT if b is COUNT else MIXED
    if a in ADDITIVE and b in ADDITIVE:
        return MEAN
    return MIXED


KEEPS_BATCH_AXIS = frozenset(
    """to cuda cpu float double half long int bool type type_as detach detach_ clone contiguous
    data view reshape view_as flatten squeeze unsqueeze permute transpose t eq ne lt gt le ge
    eq_ argmax argmin max min topk sort softmax log_softmax sigmoid tanh relu exp log sqrt pow
    abs clamp clamp_ add sub mul div add_ sub_ mul_ div_ neg round floor requires_grad_
    pin_memory numpy tolist expand gather masked_fill logical_and logical_or logical_not
    bfloat16 byte short repeat chunk split unbind copy astype float32 ravel square flip
    roll fill_ zero_ uniform_ normal_ random_""".split()
)
CREATES = frozenset(
    "randn rand zeros ones full empty randint normal Tensor FloatTensor LongTensor".split()
)
KEEPS_ANY = frozenset(
    "item detach cpu cuda to float double half long int clone data numpy tolist astype".split()
)
ELEMENTWISE_FUNCTIONS = frozenset(
    """softmax log_softmax sigmoid relu tanh max min argmax argmin eq ne topk abs exp log sqrt
    clamp round flatten squeeze unsqueeze where one_hot pad interpolate normalize gelu
    logical_and logical_or square logsigmoid softplus dropout Tensor FloatTensor DoubleTensor
    LongTensor from_numpy as_tensor tensor""".split()
)
PAIR_RESULTS = frozenset({"max", "min", "topk", "sort"})


def reduce_samples(measure: Measure, how: str, axis: object) -> Measure:
    """The measure of ``x.sum(...)`` or ``x.mean(...)``; ``axis`` is None when all are reduced."""
    if measure is U:
        return U
    if measure is SAMPLES:
        if axis in (None, 0):
            return SUM if how == "sum" else MEAN
        return SAMPLES if isinstance(axis, int) else MIXED
    return measure if axis is None and measure in (SUM, COUNT, MEAN) else MIXED
