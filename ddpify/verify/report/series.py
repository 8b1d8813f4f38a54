"""What a run did at each step, as numbers that can be drawn and written down.

Pure functions of runs; steps are numbered as in the recording, over all optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ddpify.verify.checks.pairs import StepPair, Worst, pairs, per_step
from ddpify.verify.distance import length, parameter_differences
from ddpify.verify.recording import RunRecord, StepRecord


@dataclass(frozen=True)
class Series:
    """One number for some of a run's steps; NaN where the run had one, not where it had none."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, float | None]]) -> Series:
        """The steps that have a number."""
        kept = [(step, value) for step, value in pairs if value is not None]
        steps = np.array([step for step, _ in kept], dtype=np.int64)
        return cls(steps, np.array([value for _, value in kept], dtype=np.float64))

    def at(self, steps: Iterable[int]) -> list[float | None]:
        """The numbers of these steps, None where there is none."""
        known = dict(zip(self.steps.tolist(), self.values.tolist(), strict=True))
        return [known.get(step) for step in steps]


def losses(run: RunRecord, optimizer: int | None = None) -> Series:
    """The sum of what ``backward()`` was called on: a step follows the gradient of that sum."""
    return _each(run, lambda step: sum(step.losses) if step.losses else None, optimizer)


def gradient_norms(run: RunRecord, optimizer: int | None = None) -> Series:
    """The L2 norm of all gradients together."""
    return _each(run, _gradient_norm, optimizer)


def learning_rates(run: RunRecord, optimizer: int, group: int) -> Series:
    """Of one parameter group."""
    return _each(run, lambda step: _item(step.learning_rates, group), optimizer)


def seconds(run: RunRecord) -> Series:
    """Time from one step to the next."""
    return _each(run, lambda step: step.seconds, None)


def groups(run: RunRecord, optimizer: int) -> int:
    """The largest number of parameter groups an optimizer had."""
    rates = (len(step.learning_rates) for step in run.steps if step.optimizer == optimizer)
    return max(rates, default=0)


def mean(series: tuple[Series, ...]) -> Series:
    """Over the steps that all of them have."""
    if not series:
        return Series.of(())
    common = reduce(np.intersect1d, (one.steps for one in series))
    rows = [one.values[np.isin(one.steps, common)] for one in series]
    with np.errstate(over="ignore", invalid="ignore"):
        return Series(common, np.mean(rows, axis=0))


def differences(reference: RunRecord, runs: tuple[RunRecord, ...]) -> tuple[Worst, ...]:
    """After each step the parameter that is farthest from the reference's, on any rank."""
    with np.errstate(over="ignore", invalid="ignore"):
        return per_step(
            (pair, parameter_differences(pair.parameters, pair.one.parameters, pair.others))
            for pair in _different_pairs(reference, runs)
        )


def _different_pairs(reference: RunRecord, runs: tuple[RunRecord, ...]) -> Iterator[StepPair]:
    """Ranks that are right are identical, and one of them is enough."""
    seen: set[tuple[int, tuple[str, ...]]] = set()
    for run in runs:
        for pair in pairs(reference, run):
            key = pair.number, pair.other.digests
            if key not in seen:
                seen.add(key)
                yield pair


def smooth(series: Series, limit: int = 300) -> Series:
    """At most ``limit`` points: the mean of what is finite in each stretch."""
    if len(series.steps) <= 2 * limit:
        return series
    parts = np.array_split(np.arange(len(series.steps)), limit)
    kept = [part[np.isfinite(series.values[part])] for part in parts]
    kept = [part for part in kept if len(part)]
    # a stretch stands where it ends, but the first value of a run is its own point
    steps = [int(series.steps[part[-1]]) for part in kept]
    means = [float(np.mean(series.values[part])) for part in kept]
    first = [(int(series.steps[0]), float(series.values[0]))]
    return Series.of(first + list(zip(steps, means, strict=True)))


def thin(series: Series, limit: int = 600) -> Series:
    """At most about ``limit`` points: of each stretch the lowest and the highest, so that no
    spike and nothing that is not finite is lost."""
    count = len(series.steps)
    if count <= limit:
        return series
    kept = {0, count - 1}
    for part in np.array_split(np.arange(count), limit // 2):
        values = series.values[part]
        finite = np.isfinite(values)
        if finite.any():
            kept |= {int(part[np.argmin(np.where(finite, values, np.inf))])}
            kept |= {int(part[np.argmax(np.where(finite, values, -np.inf))])}
        if not finite.all():
            kept.add(int(part[np.argmin(finite)]))
    chosen = np.array(sorted(kept))
    return Series(series.steps[chosen], series.values[chosen])


def _each(
    run: RunRecord, number: Callable[[StepRecord], float | None], optimizer: int | None
) -> Series:
    mine = (step for step in run.steps if optimizer is None or step.optimizer == optimizer)
    return Series.of((step.number, number(step)) for step in mine)


def _item(values: tuple[float, ...], place: int) -> float | None:
    return values[place] if place < len(values) else None


def _gradient_norm(step: StepRecord) -> float | None:
    known = [gradient for gradient in step.gradients if gradient is not None]
    with np.errstate(over="ignore", invalid="ignore"):
        return length(known) if known else None
