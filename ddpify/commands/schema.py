"""``ddpify schema``: what programs may rely on in the JSON of a command."""

from __future__ import annotations

import click

from ddpify import schemas
from ddpify.commands.shared import CLEAN


@click.command()
@click.argument("command", type=click.Choice(tuple(schemas.FILES)), metavar="COMMAND")
def schema(command: str) -> int:
    """Print the JSON Schema of what COMMAND prints with --format json (verify: --json -).

    COMMAND is check, statistics (check --statistics), diff, migrate, plan, rule or verify.
    """
    click.echo(schemas.text(command), nl=False)
    return CLEAN
