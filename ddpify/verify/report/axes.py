"""Where numbers stand on an axis, and which of them have a mark."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LARGEST = 1e200  # beyond it, no axis can be computed
_NICE = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Axis:
    """From ``low`` to ``high``, decimal logarithms of the numbers if ``log``.

    ``zero`` is where a log axis has zeros, a decade below everything else; None: it has none.
    """

    low: float
    high: float
    log: bool = False
    zero: float | None = None

    def place(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """From 0 to 1."""
        scaled = self.scaled(values)
        return (scaled - self.low) / (self.high - self.low)

    def scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.log:
            return values
        lowest = 10.0 ** (self.low if self.zero is None else self.zero)
        found: NDArray[np.float64] = np.log10(np.maximum(values, lowest))
        return found

    def whole(self, count: int) -> list[tuple[float, str]]:
        """The marks at whole numbers."""
        found = (one for one in _steps(self.low, self.high, count) if one.is_integer())
        return [(self._at(one), f"{one:.0f}") for one in found]

    def marks(self, count: int) -> list[tuple[float, str]]:
        """Place and text of each, about so many."""
        if not self.log:
            return [(self._at(one), f"{one:.5g}") for one in _steps(self.low, self.high, count)]
        start = self.low if self.zero is None else self.zero + 0.5
        decades = list(range(math.ceil(start), math.floor(self.high) + 1))
        every = max(1, math.ceil(len(decades) / count))
        shown = [(self._at(one), _power(one)) for one in decades[::-1][::every][::-1]]
        return shown if self.zero is None else [(self._at(self.zero), "0"), *shown]

    def _at(self, scaled: float) -> float:
        return (scaled - self.low) / (self.high - self.low)


def drawable(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Finite, and not so large that an axis cannot be computed."""
    found: NDArray[np.bool_] = np.abs(values) < _LARGEST
    return found


def linear(values: NDArray[np.float64]) -> Axis:
    """Around what can be drawn, with some air."""
    known = values[drawable(values)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    air = 0.05 * (high - low) or 0.05 * abs(low) or 0.5
    return Axis(float(low - air), float(high + air))


def steps(values: NDArray[np.float64]) -> Axis:
    """Of optimizer steps or epochs: no air, the first is at the edge."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    return Axis(low, high) if high > low else Axis(low - 0.5, high + 0.5)


def logarithmic(values: NDArray[np.float64]) -> Axis:
    """With a place for zeros where there are some."""
    positive = values[drawable(values) & (values > 0)]
    low, high = (
        (math.log10(positive.min()), math.log10(positive.max()))
        if len(positive)
        else (-17.0, -16.0)
    )
    high = max(high + 0.5, low + 2)
    if not np.any(values == 0):
        return Axis(low - 0.3, high, log=True)
    zero = math.floor(low) - 1.0
    return Axis(zero - 0.2, high, log=True, zero=zero)


def _steps(low: float, high: float, count: int) -> list[float]:
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(nice * power for nice in _NICE if nice * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _power(exponent: int) -> str:
    return f"{10.0**exponent:g}" if abs(exponent) <= 3 else f"1e{exponent:+03d}"
