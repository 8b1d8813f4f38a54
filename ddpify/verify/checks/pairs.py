"""Steps of the reference beside a rank's, parameter by parameter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddpify.verify import distance
from ddpify.verify.recording import Optimizer, Parameter, RunRecord, Signature, StepRecord


@dataclass(frozen=True)
class StepPair:
    """One optimizer step in the reference and on one rank; tensors in the reference's order."""

    number: int
    rank: int
    parameters: tuple[Parameter, ...]
    one: StepRecord
    other: StepRecord
    others: tuple[Signature, ...]
    other_gradients: tuple[Signature | None, ...]


@dataclass(frozen=True)
class Worst:
    """The largest difference in one step, over ranks and parameters."""

    step: int
    rank: int
    name: str
    difference: float

    def __str__(self) -> str:
        return f"{self.name} on rank {self.rank}: relative difference {self.difference:.3g}"


def alignment(one: Optimizer, other: Optimizer) -> tuple[int, ...] | None:
    """Where ``other`` has each parameter of ``one``: by name or, of the same shapes, in order."""
    names, twins = ([parameter.name for parameter in each.parameters] for each in (one, other))
    if len(names) != len(twins):
        return None
    order = tuple(range(len(names)))
    if len(set(names)) == len(names) and sorted(names) == sorted(twins):
        order = tuple(twins.index(name) for name in names)
    same = all(
        parameter.shape == other.parameters[place].shape
        for parameter, place in zip(one.parameters, order, strict=True)
    )
    return order if same else None


def pairs(one: RunRecord, run: RunRecord) -> Iterator[StepPair]:
    """As far as steps of the same optimizer follow each other in both."""
    orders = [alignment(*both) for both in zip(one.optimizers, run.optimizers, strict=False)]
    for number, (step, twin) in enumerate(zip(one.steps, run.steps, strict=False)):
        matched = step.optimizer == twin.optimizer and step.optimizer < len(orders)
        order = orders[step.optimizer] if matched else None
        if order is None:
            return
        yield StepPair(
            number,
            run.rank,
            one.optimizers[step.optimizer].parameters,
            step,
            twin,
            tuple(twin.parameters[place] for place in order),
            tuple(twin.gradients[place] for place in order),
        )


def per_step(found: Iterable[tuple[StepPair, Sequence[float]]]) -> tuple[Worst, ...]:
    """Of all ranks' pairs of a step the largest difference, in order of the steps."""
    worst: dict[int, Worst] = {}
    for pair, differences in found:
        top = max(range(len(differences)), key=differences.__getitem__, default=None)
        if top is None:
            continue
        entry = Worst(pair.number, pair.rank, pair.parameters[top].name, differences[top])
        if pair.number not in worst or entry.difference > worst[pair.number].difference:
            worst[pair.number] = entry
    return tuple(worst[number] for number in sorted(worst))


def initial(one: RunRecord, runs: Sequence[RunRecord]) -> tuple[Worst, ...]:
    """Of each optimizer's parameters before its first step, whose number is the entry's step."""
    found = []
    for place, optimizer in enumerate(one.optimizers):
        first = next((n for n, step in enumerate(one.steps) if step.optimizer == place), 0)
        found += [
            _initial(first, run.rank, optimizer, run.optimizers[place])
            for run in runs
            if place < len(run.optimizers)
        ]
    return tuple(found)


def gradient_floors(run: RunRecord) -> dict[int, float]:
    """For each optimizer the smallest norm of a gradient that counts."""
    largest: dict[int, float] = {}
    for step in run.steps:
        norm = distance.length(step.gradients)
        if math.isfinite(norm):
            largest[step.optimizer] = max(norm, largest.get(step.optimizer, 0.0))
    return {number: distance.SMALLEST_PART * norm for number, norm in largest.items()}


def gradient_factor(pair: StepPair, tolerance: float) -> float | None:
    """c, if the rank's whole gradient is c times the reference's, up to rounding; not once."""
    c = distance.factor(pair.one.gradients, pair.other_gradients)
    if c is None or math.isclose(c, 1, rel_tol=1e-6):
        return None
    scaled = [None if one is None else c * one for one in pair.one.gradients]
    apart = distance.gradient_differences(scaled, pair.other_gradients, 0.0)
    return c if math.hypot(*apart) <= 10 * tolerance else None


def parted(runs: Sequence[RunRecord], number: int) -> tuple[str, ...]:
    """Parameters that are not the same bits on all ranks after step ``number``."""
    first = runs[0].steps[number]
    names = runs[0].optimizers[first.optimizer].parameters
    wrong = {
        place
        for run in runs[1:]
        for place, digest in enumerate(first.digests)
        if place >= len(run.steps[number].digests) or run.steps[number].digests[place] != digest
    }
    return tuple(names[place].name for place in sorted(wrong))


def parted_at_start(runs: Sequence[RunRecord]) -> dict[int, tuple[str, ...]]:
    """For each optimizer the parameters that differ between ranks before its first step."""
    found: dict[int, tuple[str, ...]] = {}
    for optimizer in runs[0].optimizers:
        others = [
            r.optimizers[optimizer.number] for r in runs if optimizer.number < len(r.optimizers)
        ]
        found[optimizer.number] = tuple(
            parameter.name
            for place, parameter in enumerate(optimizer.parameters)
            if len({each.initial_digests[place : place + 1] for each in others}) > 1
        )
    return found


def mean_losses(
    wanted: Sequence[float], found: Sequence[Sequence[float]]
) -> list[tuple[float, float]]:
    """For each backward (for all of a step, where their numbers differ) both sides' loss."""
    if all(len(losses) == len(wanted) for losses in found):
        means = [sum(each) / len(found) for each in zip(*found, strict=True)]
        return list(zip(wanted, means, strict=True))
    if not wanted or not all(found):
        return []
    return [(sum(wanted), sum(map(sum, found)) / len(found))]


def loss_difference(one: float, other: float, floor: float) -> float:
    """Relative to the reference's loss, or to ``floor`` if that is larger."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    difference = abs(one - other)
    return (
        distance.ratio(difference, max(abs(one), floor)) if math.isfinite(difference) else math.inf
    )


def _initial(step: int, rank: int, one: Optimizer, other: Optimizer) -> Worst:
    order = alignment(one, other)
    if order is None:
        return Worst(step, rank, f"the number or shapes of {one.kind}'s parameters", math.inf)
    twins = tuple(other.initial[place] for place in order)
    apart = distance.parameter_differences(one.parameters, one.initial, twins)
    top = max(range(len(apart)), key=apart.__getitem__, default=None)
    if top is None:
        return Worst(step, rank, "none", 0.0)
    return Worst(step, rank, one.parameters[top].name, apart[top])
