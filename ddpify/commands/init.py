"""``ddpify init``: the settings of a project, asked for once."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ddpify.commands.shared import (
    CLEAN,
    TO_DO,
    Stop,
    color_flag,
    echo,
    launch_options,
    wants_color,
)

if TYPE_CHECKING:
    from ddpify.initial.beginning import Beginning, Chosen
    from ddpify.initial.detect import Detected
    from ddpify.settings import LauncherName

_HERE = "none"


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATHS]...")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: take what was detected.")
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
@click.option(
    "--pre-commit/--no-pre-commit",
    default=None,
    help="Write a hook that runs `ddpify check` before each commit (default: in a git project).",
)
@launch_options
@color_flag
def init(paths: tuple[Path, ...], yes: bool, dry_run: bool, **flags: object) -> int:
    """Set a project up: settings, a start file, a hook for pre-commit.

    PATHS are the training scripts, or the project's folder (default: the current one). What is
    detected is asked about, the files are shown, and written once you agree.
    """
    asks = not yes and not dry_run
    if asks and not sys.stdin.isatty():
        raise Stop(
            "no terminal to ask on: --yes takes what is detected, --dry-run shows what that is."
        )
    detected = _detected(paths or (Path(),))
    for line in _seen(detected):
        click.echo(line, err=True)
    chosen = _given(detected, flags)
    if asks:
        chosen = _asked(chosen, flags)
    planned = _planned(chosen)
    if dry_run or not yes:
        _show(chosen, planned, wants_color(cast("bool | None", flags["color"])))
    if dry_run:
        return TO_DO
    if asks and not click.confirm(f"Write {_count(planned)}?", default=True, err=True):
        click.echo("Nothing was written.")
        return CLEAN
    _write(chosen, planned)
    return CLEAN


def _detected(paths: tuple[Path, ...]) -> Detected:
    from ddpify.initial.detect import detect
    from ddpify.outcome import Refusal

    found = detect(paths)
    if isinstance(found, Refusal):
        raise Stop(found.message)
    return found


def _seen(detected: Detected) -> list[str]:
    scripts = ", ".join(detected.entries)
    return [f"Trains: {scripts}", *(f"Seen: {why}" for why in detected.because)]


def _given(detected: Detected, flags: dict[str, object]) -> Chosen:
    """What was detected, where no flag says otherwise."""
    from ddpify.initial.beginning import Chosen

    pre_commit = flags["pre_commit"]
    return Chosen(
        detected.root,
        detected.entries,
        cast("LauncherName", flags["launcher"] or detected.launcher),
        cast("int", flags["nodes"] or detected.nodes),
        cast("int | None", flags["gpus_per_node"] or detected.gpus),
        (detected.root / ".git").exists() if pre_commit is None else bool(pre_commit),
    )


def _asked(chosen: Chosen, flags: dict[str, object]) -> Chosen:
    """What the user says of all that no flag has said."""
    from ddpify.settings import LAUNCHERS

    if len(chosen.entries) > 1:
        scripts = click.prompt("Scripts to start", " ".join(chosen.entries), err=True)
        chosen = replace(chosen, entries=_known(shlex.split(scripts), chosen))
    if not flags["launcher"]:
        kind = click.Choice((_HERE, *LAUNCHERS))
        said = click.prompt("Several nodes, by", chosen.launcher or _HERE, type=kind, err=True)
        said = "" if said == _HERE else said
        chosen = replace(chosen, launcher=cast("LauncherName", said))
    number = click.IntRange(1)
    if chosen.launcher and not flags["nodes"]:
        nodes = click.prompt("Nodes", chosen.nodes, type=number, err=True)
        chosen = replace(chosen, nodes=nodes)
    if chosen.launcher and not flags["gpus_per_node"]:
        gpus = click.prompt("GPUs of each", chosen.gpus or 8, type=number, err=True)
        chosen = replace(chosen, gpus=gpus)
    if flags["pre_commit"] is None:
        hooked = click.confirm("A hook for pre-commit", chosen.pre_commit, err=True)
        chosen = replace(chosen, pre_commit=hooked)
    return chosen


def _known(scripts: list[str], chosen: Chosen) -> tuple[str, ...]:
    for one in scripts:
        if one not in chosen.entries:
            raise Stop(f"{one}: is none of {', '.join(chosen.entries)}")
    return tuple(scripts)


def _planned(chosen: Chosen) -> Beginning:
    from ddpify.initial.beginning import CannotBegin, beginning

    try:
        return beginning(chosen)
    except CannotBegin as error:
        raise Stop(str(error)) from error


def _show(chosen: Chosen, planned: Beginning, color: bool) -> None:
    from ddpify.outcome import Outcome
    from ddpify.report import diff, text

    outcome = Outcome(chosen.root, chosen.entries, changes=planned.changes)
    echo(diff.render(outcome, text.prefix(chosen.root), color=color), color)


def _count(planned: Beginning) -> str:
    number = len(planned.changes)
    return f"{number} file{'s' * (number != 1)}"


def _write(chosen: Chosen, planned: Beginning) -> None:
    from ddpify import write

    try:
        write.apply(planned.changes, chosen.root)
    except write.WriteError as error:
        raise Stop(str(error)) from error
    click.echo(f"Wrote {_count(planned)}:")
    for change in planned.changes:
        click.echo(f"  {os.path.relpath(chosen.root / change.path)}")
    for line in planned.told:
        click.echo(line)
    command, *entries = planned.following
    words = [command, *(os.path.relpath(chosen.root / entry) for entry in entries)]
    click.echo(f"Next: ddpify {shlex.join(words)}")
