"""The commands ``migrate``, ``diff`` and ``check``: flags in, exit code out, no logic.

Everything but click is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ddpify import __version__

if TYPE_CHECKING:
    from ddpify.outcome import Outcome
    from ddpify.settings import Settings

CLEAN, TO_DO, FAILED, INTERRUPTED = 0, 1, 2, 130
_Command = TypeVar("_Command", bound=Callable[..., int])


class Stop(click.ClickException):
    """Ends the run with one sentence on standard error and exit code 2."""

    exit_code = FAILED

    def show(self, file: object = None) -> None:
        """Print the sentence."""
        click.echo(f"ddpify: {self.message}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ddpify")
def cli() -> None:
    """Take a PyTorch training project from one GPU to several, correctly.

    Exit codes: 0 done, or nothing to do; 1 there is something to change; 2 error or refusal,
    nothing written.
    """


def _paths(command: _Command) -> _Command:
    kind = click.Path(path_type=Path)
    return click.argument("paths", nargs=-1, required=True, type=kind, metavar="PATHS...")(command)


def _color(command: _Command) -> _Command:
    text = "Colour the output (default: on a terminal, unless NO_COLOR is set)."
    return click.option("--color/--no-color", default=None, help=text)(command)


def _format(*names: str) -> Callable[[_Command], _Command]:
    kind = click.Choice(names)
    text = "How to print the result."
    return click.option("--format", "form", type=kind, default="text", help=text)


def _project_options(command: _Command) -> _Command:
    """Flags that set the same-named field of ``Settings``; absent ones leave it alone."""
    choices = (
        click.option(
            "--strategy",
            type=click.Choice(("ddp", "fsdp")),
            help="How to distribute the model: ddp (default); fsdp is not there yet.",
        ),
        click.option(
            "--runtime",
            type=click.Choice(("vendor", "import")),
            help="Copy the helper module into the project (default), or import it from ddpify.",
        ),
        click.option(
            "--runtime-module",
            metavar="NAME",
            help="Dotted name of the copied helper module, for example core.ddp_utils.",
        ),
        click.option(
            "--batch-size",
            type=click.Choice(("global", "per-rank")),
            help="The script's batch size is split over the ranks (global, default) "
            "or kept on each (per-rank).",
        ),
        click.option(
            "--sync-batchnorm/--no-sync-batchnorm",
            default=None,
            help="Convert BatchNorm to SyncBatchNorm on CUDA "
            "(default: unless DataParallel was used).",
        ),
    )
    for option in reversed(choices):
        command = option(command)
    return command


@cli.command()
@_paths
@click.option("--inplace", is_flag=True, help="Write the changes into the project.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the migrated project into DIR; the original stays as it is.",
)
@click.option("--force", is_flag=True, help="Change files with uncommitted changes, too.")
@_project_options
@_format("text", "json")
@_color
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
    settings = _settings(paths, flags)
    from ddpify import pipeline

    outcome = pipeline.migrate(paths, settings)
    if outcome.refusals:
        return _refuse(outcome, form)
    if not inplace and output is None:
        return _show_dry_run(outcome, form, color)
    written = _write(outcome, output, force)
    _show_written(outcome, output or outcome.root, written, form)
    return CLEAN


@cli.command()
@_paths
@_project_options
@_format("text", "markdown", "json")
@_color
def diff(paths: tuple[Path, ...], form: str, color: bool | None, **flags: object) -> int:
    """Show what migrate would change, with rule and reason for every hunk.

    PATHS are as for migrate. The text is a valid patch. Nothing is written.
    """
    settings = _settings(paths, flags)
    from ddpify import pipeline
    from ddpify.report import markdown

    outcome = pipeline.migrate(paths, settings)
    if outcome.refusals:
        return _refuse(outcome, form)
    if form == "markdown":
        click.echo(markdown.render(outcome), nl=False)
        return TO_DO if outcome.changes else CLEAN
    return _show_dry_run(outcome, form, color)


@cli.command()
@_paths
@click.option("--select", metavar="CODES", help="Only these rules (prefixes, comma-separated).")
@click.option("--ignore", metavar="CODES", help="Not these rules (prefixes, comma-separated).")
@_format("text", "json")
@_color
def check(paths: tuple[Path, ...], form: str, color: bool | None, **flags: str | None) -> int:
    """Report what is wrong, or missing, for training with several processes.

    PATHS are as for migrate. Nothing is written.
    """
    settings = _settings(paths, {name: _codes(value) for name, value in flags.items()})
    from ddpify import pipeline
    from ddpify.report import json, text

    outcome = pipeline.check(paths, settings)
    if outcome.refusals:
        return _refuse(outcome, form)
    if form == "json":
        click.echo(json.render(outcome), nl=False)
    else:
        shown = _wants_color(color)
        _echo(text.findings(outcome, text.prefix(outcome.root), color=shown), shown)
    return TO_DO if outcome.wanting else CLEAN


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is documented in ``--help``."""
    arguments = None if argv is None else list(argv)
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


def _settings(paths: Sequence[Path], flags: dict[str, object]) -> Settings:
    from ddpify.settings import SettingsError, load

    try:
        settings = load(paths[0], flags)
    except SettingsError as error:
        raise Stop(str(error)) from error
    if settings.strategy == "fsdp":
        raise Stop("--strategy fsdp is not there yet; ddp is the only strategy so far.")
    return settings


def _codes(value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return tuple(code.strip() for code in value.split(",") if code.strip())


def _refuse(outcome: Outcome, form: str) -> int:
    from ddpify.report import json, text

    for refusal in outcome.refusals:
        click.echo(text.refusal(refusal), err=True)
    if form == "json":
        click.echo(json.render(outcome), nl=False)
    return FAILED


def _show_dry_run(outcome: Outcome, form: str, color: bool | None) -> int:
    """The diff goes to standard output, what no patch can hold to standard error."""
    from ddpify.report import diff as diff_report
    from ddpify.report import json, text

    before = text.prefix(outcome.root)
    if form == "json":
        click.echo(json.render(outcome), nl=False)
    else:
        shown = _wants_color(color)
        _echo(diff_report.render(outcome, before, color=shown), shown)
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


def _wants_color(flag: bool | None) -> bool:
    if flag is not None:
        return flag
    return not os.environ.get("NO_COLOR") and sys.stdout.isatty()


def _echo(text: str, color: bool) -> None:
    click.echo(text, nl=False, color=color)
