"""``ddpify diff``: what migrate would change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify.commands.shared import (
    CLEAN,
    TO_DO,
    color_flag,
    echo,
    format_flag,
    paths_argument,
    project_options,
    refuse,
    settings_of,
    wants_color,
)

if TYPE_CHECKING:
    from ddpify.outcome import Outcome


@click.command()
@paths_argument
@project_options
@format_flag("text", "markdown", "json")
@color_flag
def diff(paths: tuple[Path, ...], form: str, color: bool | None, **flags: object) -> int:
    """Show what migrate would change, with rule and reason for every hunk.

    PATHS are as for migrate. The text is a valid patch. Nothing is written.
    """
    settings = settings_of(paths, flags)
    from ddpify import pipeline
    from ddpify.progress import progress
    from ddpify.report import markdown

    with progress() as step:
        outcome = pipeline.migrate(paths, settings, step)
    if outcome.refusals:
        return refuse(outcome, form)
    if form == "markdown":
        click.echo(markdown.render(outcome), nl=False)
        return TO_DO if outcome.changes else CLEAN
    return show_dry_run(outcome, form, color)


def show_dry_run(outcome: Outcome, form: str, color: bool | None) -> int:
    """The diff goes to standard output, what no patch can hold to standard error."""
    from ddpify.report import diff as diff_report
    from ddpify.report import json, text

    before = text.prefix(outcome.root)
    if form == "json":
        click.echo(json.render(outcome), nl=False)
    else:
        shown = wants_color(color)
        echo(diff_report.render(outcome, before, color=shown), shown)
        click.echo(text.summary(outcome, before), nl=False, err=True)
    return TO_DO if outcome.changes else CLEAN
