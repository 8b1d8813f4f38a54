"""``ddpify plan``: flags in, exit code out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify.commands.passing import Passing
from ddpify.commands.shared import (
    CLEAN,
    Stop,
    color_flag,
    echo,
    format_flag,
    lacking,
    plan_options,
    refuse,
    settings_of,
    wants_color,
)

if TYPE_CHECKING:
    from ddpify.advice.model import Advice, Measured
    from ddpify.outcome import Outcome
    from ddpify.settings import Settings, StrategyName


@click.command(cls=Passing)
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
    "--gpu-memory",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="With --strategy auto: the memory of each GPU (default: of the one that --measure uses).",
)
@click.option(
    "--python", metavar="PATH", help="The interpreter that trains (default: the project's)."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds without any progress after which the measured run counts as hung.",
)
@plan_options
@format_flag("text", "markdown", "json")
@color_flag
def plan(
    path: Path,
    arguments: tuple[str, ...],
    nproc: int | None,
    measure: bool,
    gpu_memory: float | None,
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

    Which strategy: ddpify plan main.py --strategy auto --gpu-memory 24 --measure
    """
    settings, names = _strategies(path, flags)
    if gpu_memory and len(names) == 1:
        raise Stop("--gpu-memory goes with --strategy auto: it decides what is recommended.")
    from ddpify import pipeline
    from ddpify.advice.advise import advise
    from ddpify.progress import progress
    from ddpify.settings import of_strategy

    chosen = {name: of_strategy(settings, name) for name in names}
    with progress() as step:
        found = {name: pipeline.examine((path,), one, step) for name, one in chosen.items()}
    usable = {name: one for name, one in found.items() if not one[0].refusals}
    if not usable:
        return refuse(found[names[0]][0], form)
    measured = None
    if measure:
        script = _script(path, next(iter(usable.values()))[0])
        measured = _measured(script, arguments, python, timeout)
    plans = {
        name: tuple(advise(of, one, chosen[name], nproc or 0, arguments, measured) for one in facts)
        for name, (of, facts) in usable.items()
    }
    best = next(iter(plans))
    if len(names) > 1:
        refused = {name: _why(one) for name, (one, _) in found.items() if name not in usable}
        best, plans[best] = _recommended(plans, refused, gpu_memory, measured, nproc)
    return _show(usable[best][0], plans[best], form, wants_color(color))


def _recommended(
    plans: dict[StrategyName, tuple[Advice, ...]],
    refused: dict[StrategyName, str],
    gpu_memory: float | None,
    measured: Measured | None,
    nproc: int | None,
) -> tuple[StrategyName, tuple[Advice, ...]]:
    """The strategy to take where each GPU has so much memory, and its plan."""
    from ddpify.advice.choice import GIBIBYTE, recommended

    capacity = int((gpu_memory or 0) * GIBIBYTE) or (measured.capacity if measured else 0)
    return recommended(plans, refused, capacity, nproc or 0)


def _show(outcome: Outcome, advice: tuple[Advice, ...], form: str, color: bool) -> int:
    from ddpify.report import plan as report

    echo(report.render(outcome, advice, form, color=color and form == "text"), color)
    return CLEAN


def _why(outcome: Outcome) -> str:
    from ddpify.report import text

    return text.refusal(outcome.refusals[0]).removeprefix("ddpify: ")


def _script(path: Path, outcome: Outcome) -> Path:
    if len(outcome.entries) != 1:
        raise Stop(f"{path}: --measure needs one script; name one of {', '.join(outcome.entries)}")
    return outcome.root / outcome.entries[0]


def _strategies(path: Path, flags: dict[str, object]) -> tuple[Settings, tuple[StrategyName, ...]]:
    """The choices, and the strategies to plan for: both where one is to be recommended."""
    if flags["strategy"] != "auto":
        settings = settings_of((path,), flags)
        return settings, (settings.strategy,)
    sharded = any(value not in (None, ()) for name, value in flags.items() if "fsdp" in name)
    given = {**flags, "strategy": "fsdp" if sharded else None}
    return settings_of((path,), given), ("ddp", "fsdp")


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
        raise lacking("--measure", error) from error
    flags = {"arguments": arguments, "timeout": timeout, **({"python": python} if python else {})}
    try:
        with shown() as report:
            return measure(Options.of(script, flags), report)
    except VerifyError as error:
        raise Stop(str(error)) from error
