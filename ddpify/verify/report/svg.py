"""Lines drawn as SVG for the page: its colours are the page's, its text the page's font."""

from __future__ import annotations

import io
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np
from matplotlib import rc_context, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from ddpify.verify.report.series import Series, smooth, thin

# Small beside its text: on a phone it is as wide as it is drawn, on a laptop half as wide again.
SIZE: Final = (4.9, 2.75)  # inches
# Colours that nothing else has; in the page they become these variables of its style sheet.
_COLORS: Final = {
    "reference": "#0a0b01",
    "mean": "#0a0b02",
    "rank": "#0a0b03",
    "level": "#0a0b04",
    "bad": "#0a0b05",
    "axis": "#0a0b06",
    "grid": "#0a0b07",
}
# The reference lies under what is compared with it, so broad that it is seen even there.
_WIDTHS: Final = {
    "reference": 4.0,
    "rank": 0.8,
    "mean": 1.5,
}
MANY = 600  # points above which a curve is reduced
_FEW = 30  # points up to which each is marked: a single one is no line


@dataclass(frozen=True)
class ChartLine:
    """``kind`` is "reference", "mean" or "rank"."""

    kind: str
    series: Series


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


def draw(plot: Plot) -> str:
    """An ``<svg>`` element without fixed size, whose ids start with the plot's name."""
    with style.context("default"), _settings():
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        floor = _floor(plot) if plot.log else None
        for number, line in enumerate(plot.lines):
            _draw_line(axes, line, f"{line.kind}-{number}", floor)
        _scale(axes, plot, floor)
        _decorate(axes, plot)
        stream = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", metadata=nothing, transparent=True)
    return _embeddable(stream.getvalue(), plot)


def _settings() -> AbstractContextManager[None]:
    """Text stays text, and nothing in it is a formula; the ids are the same each time."""
    return rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "ddpify",
            "text.parse_math": False,
            "font.size": 8.8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.6,
        }
    )


def _draw_line(axes: Axes, line: ChartLine, name: str, floor: float | None) -> None:
    series = line.series if line.series.steps.size <= MANY else _fewer(line, floor)
    finite = _drawable(series.values)
    values = np.where(finite, series.values, np.nan)
    if floor is not None:
        values = np.where(finite & (values < floor), floor, values)
    width = _WIDTHS[line.kind]
    drawn = axes.plot(
        series.steps,
        values,
        color=_COLORS[line.kind],
        linewidth=width,
        marker="o" if finite.sum() <= _FEW else "",
        markersize=1.6 + 0.7 * width,
        solid_joinstyle="round",
        zorder=3 if line.kind != "reference" else 2,
    )
    drawn[0].set_gid(name)
    _mark_bad(axes, line.series.steps[~_drawable(line.series.values)], name)


def _fewer(line: ChartLine, floor: float | None) -> Series:
    """Of many steps: the course of what is compared, the reach of what is around it."""
    return thin(line.series) if line.kind == "rank" or floor is not None else smooth(line.series)


def _drawable(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Finite, and so far from the largest number that an axis can be computed."""
    drawable: NDArray[np.bool_] = np.abs(values) < 1e200
    return drawable


def _mark_bad(axes: Axes, steps: NDArray[np.int64], name: str) -> None:
    """Mark what is not a number at the upper edge."""
    if not len(steps):
        return
    shown = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 40)).astype(int))]
    height = np.full(len(shown), 0.97)
    marks = axes.plot(
        shown,
        height,
        "x",
        color=_COLORS["bad"],
        markersize=4,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
        zorder=5,
    )
    marks[0].set_gid(f"bad-{name}")


def _floor(plot: Plot) -> float:
    """Where zeros are drawn: a decade below everything."""
    smallest = np.min(_positive(plot), initial=np.inf)
    return float(10.0 ** (np.floor(np.log10(smallest)) - 1)) if np.isfinite(smallest) else 1e-17


def _positive(plot: Plot) -> NDArray[np.float64]:
    every = [line.series.values for line in plot.lines]
    values = np.concatenate([*every, [plot.level or 0.0]])
    positive: NDArray[np.float64] = values[_drawable(values) & (values > 0)]
    return positive


def _scale(axes: Axes, plot: Plot, floor: float | None) -> None:
    if floor is None:
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.5g}"))
        return
    highest = float(np.max(_positive(plot), initial=floor * 10))
    has_zero = any(np.any(line.series.values == 0) for line in plot.lines)
    lowest = floor * 0.6 if has_zero else floor * 3
    axes.set_yscale("log")
    axes.set_ylim(lowest, max(highest * 4, lowest * 100))
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    zero = floor * 1.001 if has_zero else 0.0
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value, zero)))
    if has_zero:
        ticks = [tick for tick in axes.get_yticks() if floor * 50 < tick <= highest * 4]
        axes.set_yticks([floor, *ticks])


def _power(value: float, zero: float) -> str:
    return "0" if value <= zero else f"{value:.0e}" if abs(np.log10(value)) > 3 else f"{value:g}"


def _decorate(axes: Axes, plot: Plot) -> None:
    axes.set_xlabel("optimizer step", color=_COLORS["axis"])
    axes.set_ylabel(plot.ylabel, color=_COLORS["axis"])
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.grid(axis="y", color=_COLORS["grid"], linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(color=_COLORS["grid"], labelcolor=_COLORS["axis"], width=0.6)
    for spine in axes.spines.values():
        spine.set_color(_COLORS["grid"])
    if plot.level is not None:
        line = axes.axhline(plot.level, color=_COLORS["level"], linewidth=1, linestyle=(0, (4, 3)))
        line.set_gid("level")


def _embeddable(text: str, plot: Plot) -> str:
    """The drawing without prolog and size, its ids and colours made the page's."""
    start = text.index("<svg")
    tag = text[start : text.index(">", start) + 1]
    box = re.search(r'viewBox="[^"]*"', tag)
    body = text[start + len(tag) :]
    # a style in here would be one of the whole page
    body = re.sub(r"<(metadata|style)\b.*?</\1>", "", body, flags=re.DOTALL)
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{plot.name}-", body)
    for name, color in _COLORS.items():
        body = body.replace(color, f"var(--{name})")
    head = (
        f'<svg {box.group() if box else ""} role="img" '
        f'aria-labelledby="{plot.name}-title {plot.name}-desc">\n'
        f'<title id="{plot.name}-title">{escape(plot.title)}</title>\n'
        f'<desc id="{plot.name}-desc">{escape(plot.description)}</desc>'
    )
    return head + body.strip()
