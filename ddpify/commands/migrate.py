"""``ddpify migrate``: the change, written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify.commands.asking import asked, leave
from ddpify.commands.diff import full_flag, show_dry_run
from ddpify.commands.shared import (
    CLEAN,
    TO_DO,
    Stop,
    color_flag,
    format_flag,
    paths_argument,
    project_options,
    refuse,
    settings_of,
    wants_color,
)

if TYPE_CHECKING:
    from ddpify.choosing import Proposal
    from ddpify.outcome import Outcome
    from ddpify.settings import Settings

PARTIAL = "--partial changes what is certain, and marks this to be done by hand"


@click.command()
@paths_argument
@click.option("--inplace", is_flag=True, help="Write the changes into the project.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the migrated project into DIR; the original stays as it is.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Where it would refuse: change what is certain, mark the rest `# ddpify: TODO`; the "
    "program does not start until that is done.",
)
@click.option(
    "-p",
    "--interactive",
    is_flag=True,
    help="Ask for each change, by rule, as `git add -p` does.",
)
@click.option("--force", is_flag=True, help="Change files with uncommitted changes, too.")
@project_options
@format_flag("text", "json")
@full_flag
@color_flag
def migrate(
    paths: tuple[Path, ...],
    inplace: bool,
    output: Path | None,
    partial: bool,
    interactive: bool,
    force: bool,
    form: str,
    color: bool | None,
    full: bool | None,
    **flags: object,
) -> int:
    """Rewrite training scripts for torchrun.

    PATHS are the script that is run (several are fine), the shell script that runs it, or the
    project's folder. Without --inplace or -o the diff is printed and nothing is written.
    """
    if inplace and output:
        raise Stop("--inplace and -o exclude each other: choose one.")
    if interactive and (partial or form == "json"):
        other = "--partial" if partial else "--format json"
        raise Stop(f"--interactive and {other} exclude each other: choose one.")
    settings = settings_of(paths, flags)
    from ddpify.pipeline import migrate as migrated

    outcome = _chosen(paths, settings, color) if interactive else migrated(paths, settings, partial)
    if outcome.refusals:
        return _refuse(outcome, form, partial)
    if not inplace and output is None:
        return show_dry_run(outcome, form, color, full)
    written = _write(outcome, output, force)
    _show_written(outcome, output or outcome.root, written, form)
    return TO_DO if outcome.todos else CLEAN


def _chosen(paths: Sequence[Path], settings: Settings, color: bool | None) -> Outcome:
    """What is left of the migration once each change was asked for; ends where that is nothing."""
    from ddpify import pipeline

    wanted: list[Proposal] = []

    def choose(choices: tuple[Proposal, ...], root: Path) -> tuple[Proposal, ...]:
        wanted.extend(asked(choices, root, wants_color(color)))
        if not wanted:
            leave()
        return tuple(wanted)

    return pipeline.selected(paths, settings, choose)


def _refuse(outcome: Outcome, form: str, partial: bool) -> int:
    code = refuse(outcome, form)
    if any(one.fix for one in outcome.findings) and not partial:
        click.echo(f"ddpify: {PARTIAL}", err=True)
    return code


def _show_written(outcome: Outcome, target: Path, written: Sequence[Path], form: str) -> None:
    from ddpify.report import json, summary
    from ddpify.roots import prefix

    if form == "json":
        click.echo(json.render(outcome, written), nl=False)
    else:
        original = os.path.relpath(outcome.root) if target != outcome.root else ""
        click.echo(summary.done(outcome, prefix(target), written, original), nl=False)


def _write(outcome: Outcome, output: Path | None, force: bool) -> Sequence[Path]:
    from ddpify import write

    try:
        if output is not None:
            write.write_to(outcome.changes, outcome.root, output, outcome.files, force)
        else:
            if not force:
                _stop_on_dirty(outcome)
            write.apply(outcome.changes, outcome.root)
        return [(output or outcome.root) / change.path for change in outcome.changes]
    except write.WriteError as error:
        raise Stop(str(error)) from error


def _stop_on_dirty(outcome: Outcome) -> None:
    from ddpify import write

    dirty = write.dirty_files([change.path for change in outcome.changes], outcome.root)
    if dirty:
        names = ", ".join(str(name) for name in dirty)
        raise Stop(f"{names}: uncommitted changes; commit them, or use --force or -o DIR.")
