"""The commands ``migrate``, ``diff``, ``check`` and ``verify``: flags in, exit code out, no logic.

Everything but click is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ddpify import __version__

if TYPE_CHECKING:
    from ddpify.outcome import Outcome
    from ddpify.settings import Settings
    from ddpify.verify.verdict import Verification

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


@cli.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS...]")
@click.option("--nproc", type=click.IntRange(min=2), default=2, show_default=True, help="Ranks.")
@click.option(
    "--baseline",
    default="",
    metavar="REV|DIR",
    help="The original: a git revision or a folder (default: the script as it is, compared with "
    "a migrated copy; the last commit if the script is migrated already).",
)
@click.option(
    "--distributed-only", is_flag=True, help="Compare a distributed script with itself on 1 rank."
)
@click.option("--steps", type=click.IntRange(min=1), help="Stop after so many optimizer steps.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    help="Relative difference that is rounding (default: 1e-9 in float64, 1e-4 in float32).",
)
@click.option(
    "--dtype",
    type=click.Choice(("float64", "float32")),
    default="float64",
    show_default=True,
    help="Compute in double precision, where rounding neither hides nor feigns a difference, or "
    "as the script does.",
)
@click.option(
    "--neutralise",
    "--neutralize",
    type=click.Choice(("dropout", "batchnorm", "augmentation", "draws", "all")),
    multiple=True,
    help="Switch off what legitimately differs: random dropout, batch statistics, random draws of "
    "the data set (augmentation) or of the training loop and model (draws): each sample then draws "
    "the same everywhere. Several are fine.",
)
@click.option(
    "--overfit",
    type=click.IntRange(min=1),
    metavar="K",
    help="Train on K samples only, and see the loss fall.",
)
@click.option("--full", is_flag=True, help="Compare every element of large tensors, not sketches.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds without any progress after which a run counts as hung.",
)
@click.option("--keep", is_flag=True, help="Keep the copies and records, and say where.")
@click.option(
    "--python", metavar="PATH", help="The interpreter that trains (default: ddpify's own)."
)
@click.option(
    "--ignore-output",
    multiple=True,
    metavar="REGEX",
    help="Printed or logged text that is not compared. Several are fine.",
)
@click.option("--html", metavar="FILE", help="Write the report as a page, too.")
@click.option("--json", metavar="FILE", help="Write the report for programs (- for stdout).")
@click.option("--markdown", metavar="FILE", help="Write the report for pull requests (or -).")
@_color
def verify(
    script: Path,
    html: str | None,
    json: str | None,
    markdown: str | None,
    color: bool | None,
    **flags: object,
) -> int:
    """Run SCRIPT in one process and on several ranks, and compare them step by step.

    Both run on scratch copies of the project and are watched from outside; your files stay as
    they are. Exit code 0: the same training; 1: not the same, or not decided; 2: nothing could be
    compared.

    Example: ddpify verify main.py --nproc 2 -- --epochs 2 --batch-size 16
    """
    settings = _settings((script,), {})
    reports = {"html": html, "json": json, "markdown": markdown}
    verification = _verified(script, flags, settings)
    shown = _wants_color(color)
    if "-" not in reports.values():
        from ddpify.verify.report import text

        _echo(text.render(verification, color=shown), shown)
    for kind, target in reports.items():
        if target:
            _write_report(kind, target, verification)
    return CLEAN if verification.passed else TO_DO


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


def _verified(script: Path, flags: dict[str, object], settings: Settings) -> Verification:
    """Needs more than the other commands: what is missing is said before anything runs."""
    if not script.is_file():
        raise Stop(f"{script}: no such file")
    try:
        from ddpify.verify.options import Options
        from ddpify.verify.progress import shown
        from ddpify.verify.run import VerifyError
        from ddpify.verify.run import verify as run
    except ModuleNotFoundError as error:
        raise Stop(f"verify needs {error.name}: pip install 'ddpify[verify]'") from error
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        with shown() as report:
            return run(Options.of(script, given), settings, report)
    except VerifyError as error:
        raise Stop(str(error)) from error


def _write_report(kind: str, target: str, verification: Verification) -> None:
    render = import_module(f"ddpify.verify.report.{kind}").render
    try:
        with click.open_file(target, "w", encoding="utf-8") as stream:
            stream.write(render(verification))
    except OSError as error:
        raise Stop(f"{target}: cannot be written ({error.strerror})") from error


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
