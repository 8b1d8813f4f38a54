"""Where the samples of a layer's input, which lie along another axis than the first, are behind it.

out, state = self.lstm(self.embed(steps))    # (time, samples, features): the second of each
"""

from __future__ import annotations

from dataclasses import replace

from ddpify.facts.attention import ATTENDS, attention_axis
from ddpify.facts.layer_axes import left_by
from ddpify.facts.recurrent import POINTWISE, RECURRENT, axis_of
from ddpify.facts.values import UNKNOWN_AXIS, Kind, Thing, Value, one
from ddpify.source import Site

# What computes each row along the last axis for itself.
OF_ROWS = frozenset(POINTWISE) | frozenset(
    f"torch.nn.{name}"
    for name in "ReLU LeakyReLU Tanh Sigmoid GELU ELU SiLU Softplus Identity".split()
)
STATES = 1  # a state has its layers first


def axis_behind(layer: Thing, given: list[Value]) -> int:
    """The axis of samples of what a layer makes of these; UNKNOWN_AXIS where it is not known."""
    if layer.name in ATTENDS or layer.name in RECURRENT:
        own = attention_axis(layer) if layer.name in ATTENDS else axis_of(layer)
        return own if own is not None and given and given[0].axis == own else UNKNOWN_AXIS
    axes = {value.axis for value in given}
    if axes <= {0}:
        return 0
    if layer.name in OF_ROWS and len(given) == 1:
        return given[0].axis
    left = left_by(layer) if len(given) == 1 and layer.kind is Kind.MODEL else None
    return left.index(given[0].axis) if left and given[0].axis in left else UNKNOWN_AXIS


def with_states(layer: Thing, whole: Value, site: Site) -> Value:
    """What a recurrent layer gives, with its states; ``whole`` of any other."""
    if layer.name not in RECURRENT:
        return whole
    state = replace(whole, axis=STATES)
    if layer.name.endswith("LSTM"):
        state = replace(one(Thing(Kind.TUPLE, site, items=(state, state))), deps=whole.deps)
    return whole.but(things=(Thing(Kind.TUPLE, site, items=(whole, state)),), rows=False)
