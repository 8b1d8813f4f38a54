"""What the commands share: exit codes, the flags of a project, how an end is said."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ddpify.terminal import block

if TYPE_CHECKING:
    from ddpify.outcome import Outcome
    from ddpify.settings import Settings

CLEAN, TO_DO, FAILED, INTERRUPTED = 0, 1, 2, 130
_Command = TypeVar("_Command", bound=Callable[..., int])


class Stop(click.ClickException):
    """Ends the run with one sentence on standard error and exit code 2."""

    exit_code = FAILED

    def show(self, file: object = None) -> None:
        """Print the sentence; a path or a program's error in it must not steer the terminal."""
        click.echo(f"ddpify: {block(self.message)}", err=True)


_UNIX = ("fcntl", "pty", "termios")


def lacking(what: str, error: ModuleNotFoundError) -> Stop:
    """What trains programs needs more than the other commands, and a system that is a Unix."""
    if error.name in _UNIX:
        return Stop(f"{what} does not run on Windows; use WSL")
    return Stop(f"{what} needs {error.name}: pip install 'ddpify[verify]'")


def paths_argument(command: _Command) -> _Command:
    kind = click.Path(path_type=Path)
    return click.argument("paths", nargs=-1, required=True, type=kind, metavar="PATHS...")(command)


def color_flag(command: _Command) -> _Command:
    text = "Colour the output (default: on a terminal; NO_COLOR and FORCE_COLOR are heard)."
    return click.option("--color/--no-color", default=None, help=text)(command)


def config_flag(command: _Command) -> _Command:
    text = "A key of [tool.ddpify] in pyproject.toml for this run (repeatable)."
    return click.option("--config", multiple=True, metavar="KEY=VALUE", help=text)(command)


def format_flag(*names: str) -> Callable[[_Command], _Command]:
    kind = click.Choice(names)
    text = "How to print the result."
    return click.option("--format", "form", type=kind, default="text", help=text)


_SWITCH = ("auto", "on", "off")


class Strategies(click.Choice):  # type: ignore[type-arg,unused-ignore]
    """Of commands that need one: ``plan`` alone may choose."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """As any choice, and says where "auto" is one."""
        if value == "auto":
            self.fail("auto is for `ddpify plan`, which recommends ddp or fsdp.", param, ctx)
        return str(super().convert(value, param, ctx))


_STRATEGY = click.option(
    "--strategy",
    type=Strategies(("ddp", "fsdp")),
    help="How to distribute the model: a replica on each rank (ddp, default) or a shard "
    "of each weight (fsdp).",
)
_STRATEGY_OR_ADVICE = click.option(
    "--strategy",
    type=click.Choice(("ddp", "fsdp", "auto")),
    help="How to distribute the model: a replica on each rank (ddp, default) or a shard "
    "of each weight (fsdp); auto: recommend one of them.",
)
_OPTIONS = (
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
        "--lr-scale",
        type=click.Choice(("none", "linear", "sqrt")),
        help="With --batch-size per-rank: multiply learning rates by the number of ranks, or "
        "by its root (none: default).",
    ),
    click.option(
        "--warmup-steps",
        type=click.IntRange(1),
        metavar="N",
        help="With --lr-scale: let the rate grow from the script's own in the first N steps.",
    ),
    click.option(
        "--batch-dim",
        type=click.IntRange(0),
        metavar="AXIS",
        help="The axis of samples, for batches that come from no loader: every rank makes "
        "them and takes its share.",
    ),
    click.option(
        "--whole-batches/--no-whole-batches",
        default=None,
        help="Where not all can be followed: each rank has whole batches, of which models "
        "compute its rows (default); or refuse.",
    ),
    click.option(
        "--sync-bn",
        type=click.Choice(_SWITCH),
        help="Convert BatchNorm to SyncBatchNorm on CUDA (auto, default: unless DataParallel "
        "was used).",
    ),
    click.option(
        "--find-unused",
        type=click.Choice(_SWITCH),
        help="Let DistributedDataParallel look for parameters that get no gradient (auto, "
        "default: where the reading finds some).",
    ),
    click.option(
        "--static-graph/--no-static-graph",
        default=None,
        help="Tell DistributedDataParallel that each step uses the same parameters.",
    ),
    click.option(
        "--bucket-cap",
        type=click.IntRange(1),
        metavar="MIB",
        help="The size of the buckets in which gradients are averaged (torch's default: 25).",
    ),
    click.option(
        "--accept",
        multiple=True,
        metavar="RULE@FILE:LINE",
        help="Migrate though this rule refuses to at this line, which is said (repeatable).",
    ),
)
checkpoint_flag = click.option(
    "--checkpoint",
    type=click.Choice(("whole", "sharded", "sharded-async")),
    help="With --strategy fsdp: rank 0 writes whole files (default), or each rank its shards "
    "into a directory, also as the run goes on (sharded-async).",
)
_OF_SHARDS = (
    click.option(
        "--fsdp-wrap",
        multiple=True,
        metavar="CLASS",
        help="With --strategy fsdp: shard the modules of this class each alone (repeatable; "
        "default: those that repeat in a list).",
    ),
    click.option(
        "--fsdp-min-params",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --strategy fsdp: shard other parts alone, too, that every forward calls as a "
        "whole, if they have N weights or more.",
    ),
    click.option(
        "--fsdp-bf16/--no-fsdp-bf16",
        default=None,
        help="With --strategy fsdp: compute in bfloat16; weights, sums of gradients and the "
        "optimizer stay as they are.",
    ),
    click.option(
        "--fsdp-offload/--no-fsdp-offload",
        default=None,
        help="With --strategy fsdp: keep shards and the optimizer's state on the CPU.",
    ),
    click.option(
        "--fsdp-hybrid/--no-fsdp-hybrid",
        default=None,
        help="With --strategy fsdp: shard within each node, replicate over nodes.",
    ),
    click.option(
        "--fsdp-recompute/--no-fsdp-recompute",
        default=None,
        help="With --strategy fsdp: compute activations of these modules anew in the backward.",
    ),
    checkpoint_flag,
    click.option(
        "--fsdp-reshard/--no-fsdp-reshard",
        default=None,
        help="With --strategy fsdp: give the weights of these modules back after each forward "
        "(default), or keep them until its backward: more memory, one gather less.",
    ),
    click.option(
        "--fsdp-meta/--no-fsdp-meta",
        default=None,
        help="With --strategy fsdp: build the model on rank 0 alone; the others have its shapes, "
        "on the meta device, until it is sharded.",
    ),
)


_OF_NODES = (
    click.option(
        "--launcher",
        type=click.Choice(("torchrun", "slurm", "torchx", "kubernetes")),
        help="Also write the file that starts the program on several nodes.",
    ),
    click.option(
        "--nodes",
        type=click.IntRange(1),
        metavar="N",
        help="With --launcher: on so many nodes (default: 2).",
    ),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(1),
        metavar="N",
        help="With --launcher: so many processes on each (default: as the project's own launch "
        "line says; else all GPUs of a node with torchrun, 8 with others).",
    ),
)


def launch_options(command: _Command) -> _Command:
    """Flags of the start file, fields of ``Settings`` as well."""
    for option in reversed(_OF_NODES):
        command = option(command)
    return command


def project_options(command: _Command) -> _Command:
    """Flags that set the same-named field of ``Settings``; absent ones leave it alone."""
    return _with(command, _STRATEGY)


def plan_options(command: _Command) -> _Command:
    """The same, and "auto" for a strategy, which is none of ``Settings``."""
    return _with(command, _STRATEGY_OR_ADVICE)


def _with(command: _Command, strategy: Callable[[_Command], _Command]) -> _Command:
    for option in reversed((strategy, *_OPTIONS, *_OF_SHARDS)):
        command = option(command)
    return config_flag(command)


def mend(paths: Sequence[Path]) -> None:
    """Finish or take back what an earlier ddpify, killed on the way, left in these projects."""
    from ddpify.journal.folder import near
    from ddpify.journal.record import WriteError
    from ddpify.journal.restore import settled

    try:
        for said in filter(None, map(settled, near(paths))):
            click.echo(f"ddpify: {said}", err=True)
    except WriteError as error:
        raise Stop(str(error)) from error


def settings_of(paths: Sequence[Path], flags: dict[str, object]) -> Settings:
    """The choices for a project, which is made whole first if need be: it is read next."""
    from ddpify.settings import SettingsError, load

    mend(paths)
    try:
        return load(paths[0], flags)
    except SettingsError as error:
        raise Stop(str(error)) from error


def refuse(outcome: Outcome, form: str) -> int:
    from ddpify.report import json, text
    from ddpify.report.spelled import spelled
    from ddpify.roots import prefix

    told = spelled(outcome, prefix(outcome.root))
    for refusal in outcome.refusals:
        click.echo(told(text.refusal(refusal)), err=True)
    if form == "json":
        click.echo(json.render(outcome), nl=False)
    return FAILED


def wants_color(flag: bool | None) -> bool:
    from ddpify.terminal import shows_color

    return shows_color(sys.stdout) if flag is None else flag


def echo(text: str, color: bool) -> None:
    click.echo(text, nl=False, color=color)
