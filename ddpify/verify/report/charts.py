"""Which curves the page shows, and what they say in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ddpify.verify.checks.pairs import Worst
from ddpify.verify.recording import RunRecord
from ddpify.verify.report import series, words
from ddpify.verify.report.series import Series
from ddpify.verify.report.svg import ChartLine, Plot, draw
from ddpify.verify.verdict import Logged, Points, Verification

_ONE = "1 process"
_SPAN = 300  # times the smallest number: from there on an axis is logarithmic
_OF_TIMES = 20  # the same for times, of which the first is of another kind
_APART = 4  # up to so many optimizers have charts of their own
Measure = Callable[[RunRecord, int | None], Series]


@dataclass(frozen=True)
class Chart:
    """``legend`` are (kind of line, what it is)."""

    name: str
    title: str
    note: str
    legend: tuple[tuple[str, str], ...]
    svg: str


@dataclass(frozen=True)
class Runs:
    """Both sides of a verification, as the charts need them."""

    one: RunRecord
    many: tuple[RunRecord, ...]

    @classmethod
    def of(cls, verification: Verification) -> Runs:
        """An empty run stands for a reference that was never started."""
        return cls(
            next(iter(verification.reference.runs), RunRecord()), verification.distributed.runs
        )

    @property
    def optimizers(self) -> dict[int, str]:
        """Number and class of every optimizer that took a step."""
        runs = (*self.many, self.one)
        return {o.number: o.kind for run in runs for o in run.optimizers}

    @property
    def ranks(self) -> str:
        """The ranks' names in a legend."""
        return f"each of {len(self.many)} ranks"


def charts(verification: Verification, differences: tuple[Worst, ...]) -> tuple[Chart, ...]:
    """Those that have anything to show."""
    runs = Runs.of(verification)
    if not any(run.steps for run in (runs.one, *runs.many)):
        return ()
    found = [*_losses(runs), _differences(differences, verification.options.allowed)]
    found += [*_gradients(runs), *_rates(runs), _times(runs)]
    found += [_logged(number, one) for number, one in enumerate(verification.logged)]
    return tuple(chart for chart in found if chart is not None)


def _losses(runs: Runs) -> list[Chart | None]:
    return [_loss(runs, number, suffix) for number, suffix in _choices(runs)]


def _choices(runs: Runs) -> list[tuple[int | None, str]]:
    """(optimizer, what its charts are called besides); None: all together."""
    kinds = runs.optimizers
    if len(kinds) <= 1:
        return [(None, "")]
    if len(kinds) > _APART:
        return [(None, ", all optimizers in order")]
    return [(number, f", optimizer {number} ({kinds[number]})") for number in sorted(kinds)]


def _loss(runs: Runs, optimizer: int | None, suffix: str) -> Chart | None:
    return _averaged("loss", series.losses, runs, optimizer, f"Loss{suffix}", "loss")


def _averaged(
    name: str, measure: Measure, runs: Runs, optimizer: int | None, title: str, label: str
) -> Chart | None:
    """Where each rank has a number of its own, and their mean is what counts."""
    ours = measure(runs.one, optimizer)
    ranks = tuple(measure(run, optimizer) for run in runs.many)
    middle = series.mean(ranks)
    lines = (
        ChartLine("reference", ours, _ONE),
        *(ChartLine("rank", rank, f"rank {number}") for number, rank in enumerate(ranks)),
        ChartLine("mean", middle, "mean of the ranks"),
    )
    legend = (
        ("reference", _ONE),
        ("mean", f"mean of {len(ranks)} ranks"),
        ("rank", "each rank"),
    )
    note = f"{_course(_ONE, ours)} {_course('Mean of the ranks', middle)}"
    return _chart(name, optimizer, title, note, label, lines, legend)


def _differences(found: tuple[Worst, ...], tolerance: float) -> Chart | None:
    if not found:
        return None
    worst = max(found, key=lambda one: one.difference)
    first = next((one for one in found if not one.difference <= tolerance), None)
    note = (
        f"Largest: {words.number(worst.difference, 2)} after step {worst.step}"
        + (f", in {worst.name}. " if worst.difference else ". ")
        + (
            f"First above the tolerance: step {first.step}."
            if first
            else "Never above the tolerance."
        )
    )
    lines = (ChartLine("mean", Series.of((one.step, one.difference) for one in found), "largest"),)
    legend = (
        ("mean", "largest over parameters and ranks"),
        ("level", f"tolerance {tolerance:.0e}"),
    )
    title = "Parameters: difference from 1 process"
    label = "relative difference (L2)"
    return _chart("difference", None, title, note, label, lines, legend, tolerance)


def _gradients(runs: Runs) -> list[Chart | None]:
    found = []
    for number, suffix in _choices(runs):
        title = f"Gradient norm{suffix}"
        found.append(_overlaid("gradients", series.gradient_norms, runs, number, title, "L2 norm"))
    return found


def _overlaid(
    name: str, measure: Measure, runs: Runs, optimizer: int | None, title: str, label: str
) -> Chart | None:
    """Where ranks that are right have the same number."""
    ours = measure(runs.one, optimizer)
    theirs = [measure(run, optimizer) for run in runs.many]
    each = (ChartLine("mean", one, label) for label, one in _different(theirs))
    lines = (ChartLine("reference", ours, _ONE), *each)
    note = " ".join([_course(_ONE, ours), *(_course("Rank 0", one) for one in theirs[:1])])
    legend = (("reference", _ONE), ("mean", runs.ranks))
    return _chart(name, optimizer, title, note, label, lines, legend)


def _rates(runs: Runs) -> list[Chart | None]:
    """Learning rates, if there is more to see than a constant; each schedule once."""
    seen: dict[tuple[object, ...], None] = {}
    lines: list[ChartLine] = []
    for optimizer in runs.optimizers:
        for group in range(series.groups(runs.one, optimizer)):
            rates = [series.learning_rates(run, optimizer, group) for run in (runs.one, *runs.many)]
            key = tuple(tuple(rate.values.tolist()) for rate in rates)
            if key not in seen and len({value for values in key for value in values}) > 1:
                seen[key] = None
                lines.append(ChartLine("reference", rates[0], _ONE))
                lines += [ChartLine("mean", one, label) for label, one in _different(rates[1:])]
    if not lines:
        return []
    note = _course(_ONE, lines[0].series)
    legend = (("reference", _ONE), ("mean", runs.ranks))
    return [_chart("rate", None, "Learning rate", note, "learning rate", tuple(lines), legend)]


def _times(runs: Runs) -> Chart | None:
    return _averaged("time", _seconds, runs, None, "Time per step", "seconds")


def _seconds(run: RunRecord, _optimizer: int | None) -> Series:
    return series.seconds(run)


def _logged(number: int, one: Logged) -> Chart | None:
    """What the program says of itself, of both runs."""
    ours, theirs = (_points(points) for points in (one.reference, one.distributed))
    lines = (ChartLine("reference", ours, _ONE), ChartLine("mean", theirs, "rank 0"))
    note = f"{_course(_ONE, ours, 'at')} {_course('Rank 0', theirs, 'at')} From {one.place}."
    legend = (("reference", _ONE), ("mean", "rank 0"))
    place = (f"logged-{number}", None, f"Logged: {one.name}")
    return _chart(*place, note, one.name[-30:], lines, legend, xlabel="step, epoch or line")


def _points(points: Points) -> Series:
    """Where a step is no whole number, it is the how many-th."""
    whole = all(step.is_integer() for step, _ in points)
    return Series.of((int(step) if whole else n, v) for n, (step, v) in enumerate(points))


def _chart(
    name: str,
    optimizer: int | None,
    title: str,
    note: str,
    label: str,
    lines: tuple[ChartLine, ...],
    legend: tuple[tuple[str, str], ...],
    level: float | None = None,
    xlabel: str = "optimizer step",
) -> Chart | None:
    drawn = tuple(line for line in lines if len(line.series.steps))
    if not drawn:
        return None
    unique = f"chart-{name}" if optimizer is None else f"chart-{name}-{optimizer}"
    log = level is not None or _wide(drawn, _OF_TIMES if name == "time" else _SPAN)
    plot = Plot(
        unique, title, note, label + (", log scale" if log else ""), drawn, log, level, xlabel
    )
    if any(not np.isfinite(line.series.values).all() for line in drawn):
        legend = (*legend, ("bad", "not finite (NaN or infinite)"))
    return Chart(unique, title, note, legend, draw(plot))


def _different(ranks: list[Series]) -> list[tuple[str, Series]]:
    """Each curve once, with whose it is: those of ranks are mostly one."""
    known: dict[tuple[bytes, bytes], tuple[list[str], Series]] = {}
    for number, one in enumerate(ranks):
        key = one.steps.tobytes(), one.values.tobytes()
        known.setdefault(key, ([], one))[0].append(str(number))
    return [(f"rank {', '.join(numbers)}", one) for numbers, one in known.values()]


def _wide(lines: tuple[ChartLine, ...], span: float) -> bool:
    """Whether the numbers span so much that a linear axis shows only the largest."""
    values = np.concatenate([line.series.values for line in lines])
    finite = values[np.isfinite(values)]
    return bool(len(finite) and finite.min() > 0 and finite.max() > span * finite.min())


def _course(who: str, one: Series, at: str = "at step") -> str:
    """How a curve goes, for those who do not see it."""
    if not len(one.values):
        return f"{who}: nothing recorded."
    finite = np.flatnonzero(np.isfinite(one.values))
    first, last = one.values[0], one.values[-1]
    text = f"{who}: {words.number(first)} {at} {one.steps[0]}"
    if len(one.values) > 1:
        text += f", {words.number(last)} {at} {one.steps[-1]}"
    broken = len(one.values) - len(finite)
    if broken and not math.isnan(first):
        start = one.steps[np.flatnonzero(~np.isfinite(one.values))[0]]
        text += f"; not finite {at.replace('at', 'from', 1)} {start}"
    return f"{text}."
