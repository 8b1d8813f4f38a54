"""``ddpify migrate``: the change, written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
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
    launch_options,
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
    from ddpify.write import WrittenCopy

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
@launch_options
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
    outcome = (
        _chosen(paths, settings, color) if interactive else _migrated(paths, settings, partial)
    )
    if outcome.refusals:
        return _refuse(outcome, form, partial)
    if not inplace and output is None:
        return show_dry_run(outcome, form, color, full)
    written = _write(
        outcome, output, force, shlex.join(["ddpify", "migrate", *map(str, paths), "--inplace"])
    )
    _show_written(outcome, output or outcome.root, written, form)
    return TO_DO if outcome.todos else CLEAN


def _migrated(paths: Sequence[Path], settings: Settings, partial: bool) -> Outcome:
    from ddpify import pipeline
    from ddpify.progress import progress

    with progress() as step:
        return pipeline.migrate(paths, settings, step, partial)


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


@dataclass(frozen=True)
class _WrittenFiles:
    """``copy``: what was written besides the changes, elsewhere; ``kept``: backups of the files.

    ``alone``: the backups are all that there is of what was there before.
    """

    files: Sequence[Path]
    copy: WrittenCopy | None = None
    kept: Sequence[Path] = ()
    alone: bool = False


def _show_written(outcome: Outcome, target: Path, written: _WrittenFiles, form: str) -> None:
    from ddpify.report import json, summary, way_back
    from ddpify.roots import prefix

    copy = written.copy
    if form == "json":
        click.echo(json.render(outcome, copy.files if copy else written.files), nl=False)
        return
    original = os.path.relpath(outcome.root) if copy else ""
    start = way_back.starts(outcome, target) if copy else ()
    click.echo(summary.done(outcome, prefix(target), written.files, original, start), nl=False)
    if copy:
        rest = len(copy.files) - len(written.files) - len(copy.other.data)
        click.echo(way_back.copied(copy.other, rest), nl=False)
    for folder in written.kept:
        click.echo(way_back.undo(outcome.root, folder if written.alone else None), nl=False)


def _write(outcome: Outcome, output: Path | None, force: bool, command: str) -> _WrittenFiles:
    from ddpify import write

    files = [(output or outcome.root) / change.path for change in outcome.changes]
    try:
        if output is not None:
            copy = write.write_to(outcome.changes, outcome.root, output, outcome.files, force)
            return _WrittenFiles(files, copy)
        alone = _are_alone(outcome, force)
        return _WrittenFiles(
            files, None, write.apply(outcome.changes, outcome.root, command), alone
        )
    except write.WriteError as error:
        raise Stop(str(error)) from error


def _are_alone(outcome: Outcome, force: bool) -> bool:
    """Whether git has no copy of what is to be changed, which has to be wanted (``force``)."""
    from ddpify import write

    dirty = write.dirty_files([change.path for change in outcome.changes], outcome.root)
    if dirty and not force:
        names = ", ".join(str(name) for name in dirty)
        raise Stop(f"{names}: uncommitted changes; commit them, or use --force or -o DIR.")
    old = {change.path for change in outcome.changes if change.before is not None}
    return bool(dirty) or not old <= write.tracked(outcome.root)
