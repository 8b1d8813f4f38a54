"""``ddpify mcp``: the commands as tools for coding assistants."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ddpify.commands.shared import CLEAN, Stop


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDERS]...")
@click.option(
    "--python", default="", metavar="PATH", help="The interpreter that trains, for verify."
)
def mcp(folders: tuple[Path, ...], python: str) -> int:
    """Serve plan, diff, migrate, check, verify and rule to a coding assistant.

    It speaks the Model Context Protocol on standard input and output; the assistant starts it.
    FOLDERS (default: the current one) are all that it reads and writes.
    """
    for folder in folders:
        if not folder.is_dir():
            raise Stop(f"{folder}: no such folder")
    try:
        from ddpify.assistants.server import serve
    except ImportError as error:  # or one of another major version
        raise Stop("it needs the package mcp, 2 or newer: pip install 'ddpify[mcp]'") from error
    if sys.stdin.isatty():
        click.echo("ddpify: waiting for an assistant on standard input; Ctrl-C ends it.", err=True)
    serve(folders or (Path(),), python).run("stdio")
    return CLEAN
