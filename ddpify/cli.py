"""The command line: ``migrate`` and ``diff`` here, the others in ``commands``.

Flags in, exit code out, no logic. Everything but click is imported inside the commands, so that
``--help`` answers at once.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify import __version__
from ddpify.commands.check import check
from ddpify.commands.convert_checkpoint import convert_checkpoint
from ddpify.commands.plan import plan
from ddpify.commands.rule import rule
from ddpify.commands.shared import (
    CLEAN,
    FAILED,
    INTERRUPTED,
    TO_DO,
    Stop,
    color_flag,
    echo,
    format_flag,
    paths_argument,
    project_options,
    refuse,
    settings_of,
    wants_color,
)
from ddpify.commands.verify import verify

if TYPE_CHECKING:
    from ddpify.outcome import Outcome


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ddpify")
def cli() -> None:
    """Take a PyTorch training project from one GPU to several, correctly.

    Exit codes: 0 done, or nothing to do; 1 there is something to change; 2 error or refusal,
    nothing written.
    """


@cli.command()
@paths_argument
@click.option("--inplace", is_flag=True, help="Write the changes into the project.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the migrated project into DIR; the original stays as it is.",
)
@click.option("--force", is_flag=True, help="Change files with uncommitted changes, too.")
@project_options
@format_flag("text", "json")
@color_flag
def migrate(
    paths: tuple[Path, ...],
    inplace: bool,
    output: Path | None,
    force: bool,
    form: str,
    color: bool | None,
    **flags: object,
) -> int:
    """Rewrite training scripts for torchrun.

    PATHS are the script that is run (several are fine), the shell script that runs it, or the
    project's folder. Without --inplace or -o the diff is printed and nothing is written.
    """
    if inplace and output:
        raise Stop("--inplace and -o exclude each other: choose one.")
    settings = settings_of(paths, flags)
    from ddpify import pipeline

    outcome = pipeline.migrate(paths, settings)
    if outcome.refusals:
        return refuse(outcome, form)
    if not inplace and output is None:
        return _show_dry_run(outcome, form, color)
    written = _write(outcome, output, force)
    _show_written(outcome, output or outcome.root, written, form)
    return CLEAN


@cli.command()
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
    from ddpify.report import markdown

    outcome = pipeline.migrate(paths, settings)
    if outcome.refusals:
        return refuse(outcome, form)
    if form == "markdown":
        click.echo(markdown.render(outcome), nl=False)
        return TO_DO if outcome.changes else CLEAN
    return _show_dry_run(outcome, form, color)


cli.add_command(check)
cli.add_command(convert_checkpoint)
cli.add_command(plan)
cli.add_command(rule)
cli.add_command(verify)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is documented in ``--help``."""
    if argv is None:
        gc.disable()  # a process that ends soon: syntax trees are large, and none is garbage
    try:
        return _run(None if argv is None else list(argv))
    finally:
        if argv is None:
            gc.freeze()  # nor is there anything to look for at the end


def _run(arguments: list[str] | None) -> int:
    try:
        result = cli.main(args=arguments, prog_name="ddpify", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("ddpify: interrupted.", err=True)
        return INTERRUPTED
    except Exception:  # the one place: a bug must end as exit 2, not as 1 "something to do"
        traceback.print_exc()
        click.echo("ddpify: this is a bug in ddpify; please report the lines above.", err=True)
        return FAILED
    return result if isinstance(result, int) else CLEAN


def _show_dry_run(outcome: Outcome, form: str, color: bool | None) -> int:
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


def _show_written(outcome: Outcome, target: Path, written: Sequence[Path], form: str) -> None:
    from ddpify.report import json, text

    if form == "json":
        click.echo(json.render(outcome, written), nl=False)
    else:
        click.echo(text.summary(outcome, text.prefix(target), written), nl=False)


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
