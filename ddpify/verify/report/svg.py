"""Lines drawn as SVG for the page: its colours and its font are the page's.

The plot is an ``<svg>`` of its own within the picture: to zoom, its script changes what that
shows. All that a script needs to know stands in ``data-`` attributes; without one it is a picture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ddpify.verify.report.axes import Axis, drawable, linear, logarithmic, steps
from ddpify.verify.report.series import Series, smooth, thin

# On a phone it is as wide as it is drawn, on a laptop half as wide again.
WIDTH, HEIGHT = 360, 204
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 8, 32
ACROSS: Final = WIDTH - _LEFT - _RIGHT
DOWN: Final = HEIGHT - _TOP - _BOTTOM
MANY = 600  # points above which a curve is reduced
_FEW = 30  # points up to which each is marked: a single one is no line
_MOST_BAD = 40  # marks of what is not finite


@dataclass(frozen=True)
class ChartLine:
    """``kind`` is "reference", "mean" or "rank", ``label`` what it is where numbers are told."""

    kind: str
    series: Series
    label: str = ""


@dataclass(frozen=True)
class Plot:
    """``name`` is unique on the page; ``level`` is a horizontal line, of what allowed."""

    name: str
    title: str
    description: str
    ylabel: str
    lines: tuple[ChartLine, ...]
    log: bool = False
    level: float | None = None
    xlabel: str = "optimizer step"


def draw(plot: Plot) -> str:
    """An ``<svg>`` element without fixed size, whose ids start with the plot's name."""
    every = np.concatenate([line.series.values for line in plot.lines])
    limits = every if plot.level is None else np.append(every, plot.level)
    across = steps(np.concatenate([line.series.steps for line in plot.lines]).astype(np.float64))
    up = logarithmic(limits) if plot.log else linear(limits)
    return "\n".join(_parts(plot, across, up))


def _parts(plot: Plot, across: Axis, up: Axis) -> Iterator[str]:
    name = plot.name
    about = {"x": [across.low, across.high], "y": [up.low, up.high], "log": plot.log}
    known = {**about, "zero": up.zero, "lines": list(_told(plot)), "step": plot.xlabel}
    data = escape(json.dumps(known, separators=(",", ":")), quote=True)
    yield (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0"'
        f' aria-labelledby="{name}-title {name}-desc" data-chart="{data}">'
    )
    yield f'<title id="{name}-title">{escape(plot.title)}</title>'
    yield f'<desc id="{name}-desc">{escape(plot.description)}</desc>'
    yield from _axes(plot, across, up)
    yield (
        f'<svg class="plot" x="{_LEFT}" y="{_TOP}" width="{ACROSS}" height="{DOWN}"'
        f' viewBox="0 0 {ACROSS} {DOWN}" preserveAspectRatio="none">'
    )
    if plot.level is not None:
        y = _down(up.place(np.array([plot.level])))[0]
        yield f'<g id="{name}-level" class="level"><path d="M0,{y:.1f}L{ACROSS},{y:.1f}"/></g>'
    for number, line in enumerate(plot.lines):
        yield from _line(line, f"{name}-{line.kind}-{number}", plot.log, across, up)
    yield "</svg>"
    for number, line in enumerate(plot.lines):
        yield from _bad(line, f"{name}-bad-{line.kind}-{number}", across)
    yield "</svg>"


def _axes(plot: Plot, across: Axis, up: Axis) -> Iterator[str]:
    yield '<g class="ups">'
    for place, text in up.marks(5):
        y = _TOP + DOWN * (1 - place)
        yield f'<path class="grid" d="M{_LEFT},{y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{text}</text>'
    yield '</g><g class="acrosses">'
    for place, text in across.whole(6):
        x = _LEFT + ACROSS * place
        yield f'<text x="{x:.1f}" y="{_TOP + DOWN + 13}" text-anchor="middle">{text}</text>'
    yield "</g>"
    middle = _LEFT + ACROSS / 2
    yield f'<text x="{middle}" y="{HEIGHT - 5}" text-anchor="middle">{escape(plot.xlabel)}</text>'
    label = f'x="{-(_TOP + DOWN / 2)}" y="9" transform="rotate(-90)" text-anchor="middle"'
    yield f"<text {label}>{escape(plot.ylabel)}</text>"


def _line(line: ChartLine, name: str, log: bool, across: Axis, up: Axis) -> Iterator[str]:
    series = line.series if line.series.steps.size <= MANY else _fewer(line, log)
    finite = drawable(series.values)
    x = ACROSS * across.place(series.steps.astype(np.float64))
    y = _down(up.place(np.where(finite, series.values, 1.0)))
    yield f'<g id="{name}" class="{line.kind}"><path d="{_path(x, y, finite)}"/>'
    if finite.sum() <= _FEW:  # lines of no length, with round ends: they stay round when zoomed
        points = zip(x[finite], y[finite], strict=True)
        dots = "".join(f"M{left:.1f},{top:.1f}h0" for left, top in points)
        yield f'<path class="dots" d="{dots}"/>'
    yield "</g>"


def _path(x: NDArray[np.float64], y: NDArray[np.float64], finite: NDArray[np.bool_]) -> str:
    """Interrupted where there is no number."""
    parts = []
    pen = "M"
    for left, top, known in zip(x, y, finite, strict=True):
        parts += [f"{pen}{left:.1f},{top:.1f}"] if known else []
        pen = "L" if known else "M"
    return "".join(parts)


def _fewer(line: ChartLine, log: bool) -> Series:
    """Of many steps: the course of what is compared, the reach of what is around it."""
    return thin(line.series) if line.kind == "rank" or log else smooth(line.series)


def _bad(line: ChartLine, name: str, across: Axis) -> Iterator[str]:
    """A mark at the upper edge for what is not a number."""
    steps_of = line.series.steps[~drawable(line.series.values)]
    if not len(steps_of):
        return
    chosen = np.linspace(0, len(steps_of) - 1, min(len(steps_of), _MOST_BAD)).astype(int)
    yield f'<g id="{name}" class="bad">'
    for place in across.place(steps_of[np.unique(chosen)].astype(np.float64)):
        x = _LEFT + ACROSS * place
        yield f'<path d="M{x - 3:.1f},5l6,6m0,-6l-6,6"/>'
    yield "</g>"


def _told(plot: Plot) -> Iterator[tuple[str, list[float], list[float | None]]]:
    """Label, steps and values of each line, as a reader is told them."""
    for line in plot.lines:
        series = line.series if line.series.steps.size <= MANY else thin(line.series)
        values = [float(f"{one:.5g}") if np.isfinite(one) else None for one in series.values]
        yield line.label or line.kind, series.steps.tolist(), values


def _down(place: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = DOWN * (1 - place)
    return found
