"""Every command with its help, as the command line prints it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ddpify.cli import cli

_WIDTH = 80


def page() -> str:
    """One page for all commands."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield from ("# Commands", "", "As `ddpify COMMAND --help` prints them.", "")
    top = click.Context(cli, info_name="ddpify", terminal_width=_WIDTH, **cli.context_settings)
    yield from ("```text", cli.get_help(top), "```", "")
    for name, command in sorted(cli.commands.items()):
        context = click.Context(command, parent=top, info_name=name)
        yield from (f"## ddpify {name}", "", "```text", command.get_help(context), "```", "")
