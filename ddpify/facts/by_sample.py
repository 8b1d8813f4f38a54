"""Functions of torch that work on one sample at a time: what they give has a sample a row, again.

The signatures are those of torch 2.13; a weight, a size or an axis goes with all samples. ::

    F.conv2d(images, kernel)            # the samples come first, and stay there
    mean, log_variance = h.chunk(2, 1)  # cut along another axis
"""

from __future__ import annotations

import ast

from ddpify.facts import axis_counts, measures, rows
from ddpify.facts.events import Call
from ddpify.facts.joining import computed, flat_measure
from ddpify.facts.protocol import Machine
from ddpify.facts.values import PERHAPS_ONE, Kind, Measure, Thing, Value

# How many of the arguments, from the first, may be tensors with a sample a row.
FUNCTIONS = {
    **dict.fromkeys(
        """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d avg_pool1d
        avg_pool3d max_pool1d max_pool3d lp_pool1d lp_pool2d adaptive_avg_pool1d
        adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool3d upsample upsample_nearest
        upsample_bilinear affine_grid pixel_shuffle pixel_unshuffle channel_shuffle unfold fold
        instance_norm group_norm layer_norm rms_norm local_response_norm linear prelu
        embedding""".split(),
        1,
    ),
    **dict.fromkeys("grid_sample bilinear".split(), 2),
    "scaled_dot_product_attention": 3,
}
ARGUMENTS = ("input", "grid", "query", "key", "value")
# One axis of a sample may be all there is: an index of a table.
OF_NUMBERS = frozenset({"embedding"})
FUNCTIONAL = ("torch.nn.functional.", "torch.")
# What is cut into parts along an axis, and the place of the axis behind the tensor.
CUTS = {"chunk": 1, "split": 1, "tensor_split": 1, "unbind": 0}
PAIRS = {"values": 0, "indices": 1}  # the fields of what `x.max(1)` gives


def function(name: str, tail: str, call: Call) -> Value | None:
    """The result of a function of torch; None where it is not one of these, or not followed."""
    if tail not in FUNCTIONS or name.rpartition(".")[0] + "." not in FUNCTIONAL:
        return None
    own = list(call.args[: FUNCTIONS[tail]])
    rest = list(call.args[FUNCTIONS[tail] :])
    for argument, value in call.kwargs.items():
        (own if argument in ARGUMENTS else rest).append(value)
    fits = all(_fits(value, tail) for value in own)
    shared = all(flat_measure(value) is Measure.UNIFORM for value in rest)
    tensors = [value for value in own if value.measure is Measure.SAMPLES]
    if not (fits and shared and tensors):
        return None
    made = computed(*own, *rest, measure=Measure.SAMPLES)
    return made.but(axis=0, axes=0, rows=rows.has_rows(tensors[0]))


def _fits(value: Value, tail: str) -> bool:
    """Whether a tensor is the same for all samples, or has them first, and other axes behind."""
    if value.measure is Measure.SAMPLES:
        several = value.axes not in (1, PERHAPS_ONE) or tail in OF_NUMBERS
        return value.axis == 0 and several and not value.of(Kind.TUPLE, Kind.ITERATOR)
    return flat_measure(value) is Measure.UNIFORM


def of_part(m: Machine, name: str, call: Call) -> str:
    """``steps[t].unsqueeze_(0)`` is as ``unsqueeze``: what it changes is made for it alone."""
    site = call.receiver_site if name == "unsqueeze_" else None
    part = m.tree(site.path).expression(site) if site is not None else None
    return "unsqueeze" if isinstance(part, ast.Subscript) else name


def cut(name: str, call: Call, given: int, value: Value) -> Value | None:
    """Parts of all samples: ``x.chunk(2, 1)``; None where samples are cut, or may be."""
    place = CUTS.get(name)
    if place is None or value.measure not in measures.ENTRIES or value.things:
        return None
    axis = call.arg(place + given, "dim")
    seen = axis_counts.counted(value, axis.const) if axis is not None and axis.known else None
    if not isinstance(seen, int) or value.axis < 0 or seen == value.axis:
        return None
    axes = value.axes - 1 if name == "unbind" and value.axes > 1 else value.axes
    gone = 1 if name == "unbind" and 0 <= seen < value.axis else 0
    own = rows.has_rows(value)
    part = computed(value, measure=value.measure).but(
        rows=own, axis=value.axis - gone, axes=axes, blocks=value.blocks
    )
    return Value((Thing(Kind.ITERATOR, call.site, inner=part),), part.deps, part.measure)


def field(thing: Thing, name: str) -> Value | None:
    """``x.max(1).values``; None of anything else."""
    pair = thing.kind is Kind.TUPLE and len(thing.items or ()) == 2 and name in PAIRS
    return (thing.items or ())[PAIRS[name]] if pair else None
