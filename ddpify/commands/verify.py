"""``ddpify verify``: flags in, exit code out."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify.commands.passing import GIVEN, Passing
from ddpify.commands.reports import Reports
from ddpify.commands.shared import (
    CLEAN,
    TO_DO,
    Stop,
    Strategies,
    checkpoint_flag,
    color_flag,
    echo,
    lacking,
    settings_of,
    wants_color,
)

if TYPE_CHECKING:
    from ddpify.settings import Settings
    from ddpify.verify.options import Options
    from ddpify.verify.verdict import Verification


@click.command(cls=Passing)
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
    "--strategy",
    type=Strategies(("ddp", "fsdp")),
    help="How the migrated copy distributes the model (default: as pyproject.toml says, or ddp).",
)
@checkpoint_flag
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
    type=click.Choice(("auto", "dropout", "batchnorm", "augmentation", "draws", "all")),
    multiple=True,
    help="Switch off what legitimately differs: random dropout, batch statistics, random draws of "
    "the data set (augmentation) or of the training loop and model (draws): each sample then draws "
    "the same everywhere. Several are fine; auto: run both again without what leaves the "
    "comparison undecided.",
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
    "--python",
    metavar="PATH",
    help="The interpreter that trains (default: that of the active environment, of .venv or venv "
    "in the project or above, or ddpify's own).",
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
@click.option("--junit", metavar="FILE", help="Write a JUnit report: a test for each check.")
@click.option(
    "--summary", is_flag=True, help="Add the report to the summary of this GitHub job, too."
)
@color_flag
@click.pass_context
def verify(
    context: click.Context,
    /,
    script: Path,
    strategy: str | None,
    checkpoint: str | None,
    html: str | None,
    json: str | None,
    markdown: str | None,
    junit: str | None,
    summary: bool,
    color: bool | None,
    **flags: object,
) -> int:
    """Run SCRIPT in one process and on several ranks, and compare them step by step.

    Both run on scratch copies of the project and are watched from outside; your files stay as
    they are. SCRIPT may be the shell script that starts it, or its folder. Exit code 0: the same
    training; 1: not the same, or not decided; 2: nothing could be compared.

    Example: ddpify verify main.py --nproc 2 -- --epochs 2 --batch-size 16
    """
    settings = settings_of((script,), {"strategy": strategy, "checkpoint": checkpoint})
    reports = Reports(html, json, markdown, junit, summary)
    reports.prepare()
    flags["command"] = context.meta[GIVEN]
    verification = _verified(script, flags, settings)
    shown = wants_color(color)
    if not reports.on_stdout:
        from ddpify.terminal import width
        from ddpify.verify.report import text

        echo(text.render(verification, color=shown, width=width()), shown)
    reports.write(verification)
    return CLEAN if verification.passed else TO_DO


def _verified(path: Path, flags: dict[str, object], settings: Settings) -> Verification:
    """Needs more than the other commands: what is missing is said before anything runs."""
    try:
        from ddpify.verify.options import Options
        from ddpify.verify.run import VerifyError
    except ModuleNotFoundError as error:
        raise lacking("verify", error) from error
    given = {name: value for name, value in flags.items() if value is not None}
    script = _script(path, settings)
    options = Options.of(script, given)
    if options.elsewhere:
        _say(f"trains with {options.python} ({options.why_python})")
    try:
        verification = _run(options, settings)
        while (left := verification.undecided_by) and _agreed(verification, flags["neutralise"]):
            options = replace(options, neutralise=options.neutralise | {*left})
            verification = _run(options, settings)
    except VerifyError as error:
        raise Stop(str(error)) from error
    return verification


def _run(options: Options, settings: Settings) -> Verification:
    from ddpify.verify.progress import shown
    from ddpify.verify.run import verify as run

    with shown() as report:
        return run(options, settings, report)


def _agreed(verification: Verification, asked: object) -> bool:
    """Whether both run again, without what leaves the comparison undecided."""
    noises = ", ".join(verification.undecided_by)
    why = f"not the same in one process and several, by right: {noises}"
    if isinstance(asked, tuple) and "auto" in asked:
        _say(f"{why}; both run again with that switched off")
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return click.confirm(
        f"ddpify: {why}. Run both again with that switched off?", default=True, err=True
    )


def _script(path: Path, settings: Settings) -> Path:
    """The one script that a shell script, a makefile or a folder stands for."""
    from ddpify import discover
    from ddpify.outcome import Refusal
    from ddpify.report import text

    found = discover.entries((path,))
    if isinstance(found, Refusal):
        raise Stop(text.refusal(found).removeprefix("ddpify: "))
    if found.scripts == (path,):
        return path
    scripts = [Path(os.path.relpath(script)) for script in found.scripts]
    if len(scripts) > 1:
        scripts = _training(path, settings) or scripts
    if len(scripts) > 1:
        raise Stop(f"{path}: verify runs one script; name one of {', '.join(map(str, scripts))}")
    _say(f"the script is {scripts[0]}")
    return scripts[0]


def _training(path: Path, settings: Settings) -> list[Path]:
    """Those of several scripts that train; none where that cannot be said."""
    from ddpify import pipeline

    outcome = pipeline.migrate((path,), settings)
    return [Path(os.path.relpath(outcome.root / entry)) for entry in outcome.entries]


def _say(text: str) -> None:
    click.echo(f"ddpify: {text}", err=True)
