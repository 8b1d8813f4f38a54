"""``ddpify server``: ``check`` for editors."""

from __future__ import annotations

import click

from ddpify.commands.shared import CLEAN, Stop


@click.command()
@click.option("--stdio", is_flag=True, hidden=True, help="The only way; some editors say so.")
def server(stdio: bool) -> int:
    """Tell an editor what `check` finds, while you type.

    Speaks the language server protocol on standard input and output: diagnostics, fixes, the pages
    of rules. docs/editors.md sets up VS Code, Neovim and Helix.
    """
    try:
        from ddpify.server.serve import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise Stop("server needs pygls: pip install 'ddpify[server]'") from error
    serve()
    return CLEAN
