"""``ddpify env``: what a bug report has to say of the machine."""

from __future__ import annotations

import click

from ddpify.commands.shared import CLEAN


@click.command()
@click.option(
    "--python", metavar="PATH", help="The interpreter that trains (default: the project's)."
)
def env(python: str | None) -> int:
    """Print versions, GPUs and the file of the settings, for bug reports.

    Nothing of the project is run or imported.
    """
    from ddpify.surroundings import lines

    for what, which in lines(python):
        click.echo(f"{what:<9} {which}")
    return CLEAN
