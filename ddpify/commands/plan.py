"""``ddpify plan``: flags in, exit code out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify.commands.shared import (
    CLEAN,
    Stop,
    color_flag,
    echo,
    format_flag,
    project_options,
    refuse,
    settings_of,
    wants_color,
)

if TYPE_CHECKING:
    from ddpify.advice.model import Measured


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS...]")
@click.option(
    "--nproc",
    type=click.IntRange(min=1),
    default=None,
    help="GPUs to plan for (default: those the launchers list, else 2, 4 and 8).",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Run the original for a step or two, in a scratch copy, and measure what it holds.",
)
@click.option(
    "--python", metavar="PATH", help="The interpreter that trains (default: ddpify's own)."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds without any progress after which the measured run counts as hung.",
)
@project_options
@format_flag("text", "markdown", "json")
@color_flag
def plan(
    path: Path,
    arguments: tuple[str, ...],
    nproc: int | None,
    measure: bool,
    python: str | None,
    timeout: float,
    form: str,
    color: bool | None,
    **flags: object,
) -> int:
    """Say what migrating PATH means: files, strategy, batch, steps, learning rate, memory.

    PATH is the script that is run, the shell script that runs it, or the project's folder. Nothing
    is written, and nothing is run without --measure. ARGUMENTS are the program's own. Exit code 0:
    there is a plan; 2: a refusal or an error.

    Example: ddpify plan main.py --nproc 4 --measure -- --batch-size 16
    """
    settings = settings_of((path,), flags)
    from ddpify import pipeline
    from ddpify.advice.advise import advise

    outcome, facts = pipeline.examine((path,), settings)
    if outcome.refusals:
        return refuse(outcome, form)
    measured = None
    if measure:
        if len(facts) != 1:
            raise Stop(
                f"{path}: --measure needs one script; name one of {', '.join(outcome.entries)}"
            )
        script = outcome.root / facts[0].entry.path
        measured = _measured(script, arguments, python, timeout)
    advice = tuple(advise(outcome, one, settings, nproc or 0, arguments, measured) for one in facts)
    from ddpify.report import plan as report

    shown = wants_color(color)
    echo(report.render(outcome, advice, form, color=shown and form == "text"), shown)
    return CLEAN


def _measured(
    script: Path, arguments: tuple[str, ...], python: str | None, timeout: float
) -> Measured:
    """Needs more than the plan alone: what is missing is said before anything runs."""
    try:
        from ddpify.verify.measure import measure
        from ddpify.verify.options import Options
        from ddpify.verify.progress import shown
        from ddpify.verify.run import VerifyError
    except ModuleNotFoundError as error:
        raise Stop(f"--measure needs {error.name}: pip install 'ddpify[verify]'") from error
    flags = {"arguments": arguments, "timeout": timeout, **({"python": python} if python else {})}
    try:
        with shown() as report:
            return measure(Options.of(script, flags), report)
    except VerifyError as error:
        raise Stop(str(error)) from error
