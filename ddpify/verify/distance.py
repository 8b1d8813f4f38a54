"""How far apart two tensors are, from their signatures; all norms are L2."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ddpify.verify.recording import Parameter, Signature

# A parameter's elements count as no smaller than this part of the model's typical element:
# relative to itself alone a bias that stays at (almost) zero would be all rounding.
SMALLEST_ELEMENT = 1e-2
# Likewise a gradient or loss, as part of the run's largest: at a minimum both are noise.
SMALLEST_PART = 1e-3


def norm(signature: Signature) -> float:
    """Infinite where an element is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        length = float(np.linalg.norm(signature)) if signature.size else 0.0
    return length if math.isfinite(length) else math.inf


def apart(left: Signature, right: Signature) -> float:
    """The norm of the difference; elements that are NaN or infinite on both sides are equal."""
    if left.shape != right.shape:
        return math.inf
    if np.array_equal(left, right, equal_nan=True):
        return 0.0
    differ = ~((left == right) | (np.isnan(left) & np.isnan(right)))
    return norm(left[differ] - right[differ])


def ratio(difference: float, scale: float) -> float:
    """``difference`` relative to ``scale``; anything relative to nothing is infinite."""
    if difference == 0:
        return 0.0
    return difference / scale if scale and math.isfinite(scale) else math.inf


def length(signatures: Iterable[Signature | None]) -> float:
    """The norm of all tensors as one vector."""
    return math.hypot(*(norm(each) for each in signatures if each is not None))


def relative(left: Signature, right: Signature) -> float:
    """The difference relative to the larger of both, as far as they are finite."""
    scale = max(norm(side[np.isfinite(side)]) for side in (left, right))
    return ratio(apart(left, right), scale)


def parameter_differences(
    parameters: Sequence[Parameter], left: Sequence[Signature], right: Sequence[Signature]
) -> tuple[float, ...]:
    """For each parameter the difference relative to ``left``'s, see ``SMALLEST_ELEMENT``."""
    counts = [math.prod(parameter.shape) for parameter in parameters]
    typical = length(left) / math.sqrt(max(sum(counts), 1))
    floors = (SMALLEST_ELEMENT * typical * math.sqrt(count) for count in counts)
    return tuple(
        ratio(apart(one, other), max(norm(one), floor))
        for one, other, floor in zip(left, right, floors, strict=True)
    )


def gradient_differences(
    left: Sequence[Signature | None], right: Sequence[Signature | None], floor: float
) -> tuple[float, ...]:
    """For each parameter the difference relative to the whole gradient ``left``.

    No gradient at all is one of zero. ``floor`` is the smallest norm of a whole gradient that
    counts (``SMALLEST_PART`` of the run's largest).
    """
    scale = max(length(left), floor)
    return tuple(_from(one, other, scale) for one, other in zip(left, right, strict=True))


def factor(left: Sequence[Signature | None], right: Sequence[Signature | None]) -> float | None:
    """The number c for which ``right`` is c · ``left`` as well as it can be; None: of nothing."""
    pairs = [
        (one, other)
        for one, other in zip(left, right, strict=True)
        if one is not None and other is not None and one.shape == other.shape
    ]
    square = sum(float(one @ one) for one, _ in pairs)
    product = sum(float(one @ other) for one, other in pairs)
    return product / square if square and math.isfinite(square) else None


def _from(left: Signature | None, right: Signature | None, scale: float) -> float:
    if left is None and right is None:
        return 0.0
    if left is None or right is None:
        return ratio(norm(left if right is None else right), scale)  # type: ignore[arg-type]
    return ratio(apart(left, right), scale)
