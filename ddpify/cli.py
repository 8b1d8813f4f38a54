"""The command line: every command is a file in ``commands``.

Flags in, exit code out, no logic. Everything but click is imported inside the commands, so that
``--help`` answers at once.
"""

from __future__ import annotations

import errno
import gc
import traceback
from collections.abc import Sequence

import click

from ddpify import __version__
from ddpify.commands.check import check
from ddpify.commands.clean import clean
from ddpify.commands.completion import completion
from ddpify.commands.convert_checkpoint import convert_checkpoint
from ddpify.commands.diff import diff
from ddpify.commands.env import env
from ddpify.commands.init import init
from ddpify.commands.mcp import mcp
from ddpify.commands.migrate import migrate
from ddpify.commands.plan import plan
from ddpify.commands.rule import rule
from ddpify.commands.schema import schema
from ddpify.commands.server import server
from ddpify.commands.shared import CLEAN, FAILED, INTERRUPTED, TO_DO
from ddpify.commands.undo import undo
from ddpify.commands.verify import verify

__all__ = ["CLEAN", "FAILED", "INTERRUPTED", "TO_DO", "cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ddpify")
def cli() -> None:
    """Take a PyTorch training project from one GPU to several, correctly.

    Exit codes: 0 done, or nothing to do; 1 there is something to change; 2 error or refusal,
    nothing written.
    """


for command in (
    check,
    clean,
    completion,
    convert_checkpoint,
    diff,
    env,
    init,
    mcp,
    migrate,
    plan,
    rule,
    schema,
    server,
    undo,
    verify,
):
    cli.add_command(command)


_FULL = (errno.ENOSPC, errno.EDQUOT)  # of the output, which has no name; files are told of apart


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
    except Exception as error:  # the one place: a bug must end as 2, not as 1 "something to do"
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            click.echo(f"ddpify: the output cannot be written ({error.strerror}).", err=True)
            return FAILED
        traceback.print_exc()
        click.echo("ddpify: this is a bug in ddpify; please report the lines above.", err=True)
        return FAILED
    return result if isinstance(result, int) else CLEAN
