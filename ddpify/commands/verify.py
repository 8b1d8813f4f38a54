"""``ddpify verify``: flags in, exit code out."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify.commands.shared import (
    CLEAN,
    TO_DO,
    Stop,
    Strategies,
    checkpoint_flag,
    color_flag,
    echo,
    settings_of,
    wants_color,
)

if TYPE_CHECKING:
    from ddpify.settings import Settings
    from ddpify.verify.verdict import Verification


@click.command()
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
@color_flag
def verify(
    script: Path,
    strategy: str | None,
    checkpoint: str | None,
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
    settings = settings_of((script,), {"strategy": strategy, "checkpoint": checkpoint})
    reports = {"html": html, "json": json, "markdown": markdown}
    verification = _verified(script, flags, settings)
    shown = wants_color(color)
    if "-" not in reports.values():
        from ddpify.verify.report import text

        echo(text.render(verification, color=shown), shown)
    for kind, target in reports.items():
        if target:
            _write_report(kind, target, verification)
    return CLEAN if verification.passed else TO_DO


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
