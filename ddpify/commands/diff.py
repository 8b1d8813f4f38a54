"""``ddpify diff``: what migrate would change."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ddpify.commands.shared import (
    CLEAN,
    TO_DO,
    color_flag,
    echo,
    format_flag,
    launch_options,
    paths_argument,
    project_options,
    refuse,
    settings_of,
    wants_color,
)

if TYPE_CHECKING:
    from ddpify.outcome import Outcome

full_flag = click.option(
    "--full/--fold",
    default=None,
    help="Show copied helpers whole, or in one line (default: in one line on a terminal).",
)


@click.command()
@paths_argument
@project_options
@launch_options
@format_flag("text", "markdown", "json")
@full_flag
@color_flag
def diff(
    paths: tuple[Path, ...], form: str, color: bool | None, full: bool | None, **flags: object
) -> int:
    """Show what migrate would change, with rule and reason for every hunk.

    PATHS are as for migrate. In a pipe, or with --full, the text is a valid patch. Nothing is
    written.
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
    return show_dry_run(outcome, form, color, full)


def show_dry_run(outcome: Outcome, form: str, color: bool | None, full: bool | None) -> int:
    """The diff goes to standard output, what no patch can hold to standard error."""
    from ddpify.report import diff as diff_report
    from ddpify.report import json, summary
    from ddpify.roots import prefix

    before = prefix(outcome.root)
    if form == "json":
        click.echo(json.render(outcome), nl=False)
    else:
        shown = wants_color(color)
        folded = sys.stdout.isatty() if full is None else not full
        echo(diff_report.render(outcome, before, color=shown, folded=folded), shown)
        told = summary.planned(outcome, before, writing(click.get_current_context()))
        click.echo(told, nl=False, err=True)
    return TO_DO if outcome.changes else CLEAN


def writing(context: click.Context) -> str:
    """The command line that writes what this one shows: its paths, and its options as given."""
    words = ["ddpify", "migrate"]
    for one in context.command.params:
        value = context.params[one.name or ""]
        given = context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
        if given and one.name not in _OF_SHOWING:
            words += _spelled(one, value)
    return shlex.join([*words, "--inplace"])


_OF_SHOWING = ("color", "form", "full", "force")


def _spelled(one: click.Parameter, value: object) -> list[str]:
    """A parameter as it is typed."""
    values = [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
    if isinstance(one, click.Argument):
        return values
    if isinstance(value, bool):
        return [(one.opts if value else one.secondary_opts)[0]]
    return [word for each in values for word in (one.opts[0], each)]
