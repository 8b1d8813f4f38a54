"""Every command with its help, as the command line prints it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ddpify.cli import cli


def page() -> str:
    """One page for all commands."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield from ("# Commands", "", "As `ddpify COMMAND --help` prints them.", "")
    yield from _help(click.Context(cli, info_name="ddpify"), cli)
    for name, command in sorted(cli.commands.items()):
        yield from (f"## ddpify {name}", "")
        yield from _help(click.Context(command, info_name=f"ddpify {name}"), command)


def _help(context: click.Context, command: click.Command) -> Iterator[str]:
    context.max_content_width = 90
    context.terminal_width = 90
    yield from ("```text", command.get_help(context), "```", "")
