"""A plan as text with aligned columns, as Markdown, or as JSON."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

import click

from ddpify.advice.model import Advice
from ddpify.outcome import Outcome
from ddpify.report import plan_json
from ddpify.report.plan_sections import sections
from ddpify.report.plan_tables import Section, Table
from ddpify.report.spelled import spelled
from ddpify.roots import prefix
from ddpify.terminal import width

_ENDLESS = 10_000  # columns, in which no cell is wrapped


def render(
    outcome: Outcome, advice: tuple[Advice, ...], form: str = "text", *, color: bool = False
) -> str:
    """``form`` is "text", "markdown" or "json"."""
    if form == "json":
        return plan_json.render(outcome, advice)
    told = spelled(outcome, prefix(outcome.root))
    entries = told(", ".join([one.entry for one in advice] or outcome.entries))
    way = "Lightning's Trainer" if outcome.starts_itself else "torchrun"
    title = f"{entries} under {way} (nothing is written)"
    found = (section.spelled(told) for section in sections(outcome, advice))
    if form == "markdown":
        lines = [f"## ddpify plan: {title}"]
        lines += [line for section in found for line in _markdown(section)]
    else:
        lines = [_bold(f"Plan: {title}", color)]
        lines += [line for section in found for line in _text(section, color)]
    return "\n".join(lines) + "\n"


def _bold(text: str, color: bool) -> str:
    return click.style(text, bold=True) if color else text


def _text(section: Section, color: bool) -> Iterator[str]:
    yield ""
    yield _bold(f"{section.title}:", color)
    after_table = False
    for part in section.parts:
        if after_table or isinstance(part, Table):
            yield from ("",) if after_table else ()
        if isinstance(part, Table):
            fits = width() - 2 if sys.stdout.isatty() else None  # programs want a row per line
            yield from (f"  {line}".rstrip() for line in aligned(part, fits))
        else:
            yield from textwrap.wrap(
                part, width(), initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
            )
        after_table = isinstance(part, Table)


def aligned(table: Table, columns: int | None = None) -> Iterator[str]:
    """Words on the left, numbers on the right; empty columns are left out.

    Cells are wrapped where all are to fit into so many ``columns``.
    """
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    kept = [i for i in range(len(table.header)) if any(row[i] for row in table.rows)]
    for i in kept:
        grid.add_column(table.header[i], justify="left" if i in table.left else "right")
    for row in table.rows:
        grid.add_row(*(Text(row[i]) for i in kept))
    console = Console(width=columns or _ENDLESS, color_system=None, soft_wrap=False)
    with console.capture() as printed:
        console.print(grid)
    return iter(printed.get().splitlines())


def _markdown(section: Section) -> Iterator[str]:
    yield from ("", f"### {section.title}", "")
    for part in section.parts:
        if isinstance(part, str):
            yield f"- {part}"
        else:
            yield from ("", *_markdown_table(part), "")


def _markdown_table(table: Table) -> Iterator[str]:
    kept = [i for i in range(len(table.header)) if any(row[i] for row in table.rows)]
    yield f"| {' | '.join(table.header[i] for i in kept)} |"
    yield "|" + "|".join("---" if i in table.left else "--:" for i in kept) + "|"
    for row in table.rows:
        yield f"| {' | '.join(row[i].replace('|', chr(92) + '|') for i in kept)} |"
