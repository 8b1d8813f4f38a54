"""``ddpify completion``: what makes a shell complete commands, flags and rule codes."""

from __future__ import annotations

import click

from ddpify.commands.shared import CLEAN


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> int:
    """Print what lets SHELL complete ddpify's commands, flags and rule codes.

    \b
    bash: ddpify completion bash > ~/.local/share/bash-completion/completions/ddpify
    zsh:  ddpify completion zsh > a file _ddpify in a folder of $fpath
    fish: ddpify completion fish > ~/.config/fish/completions/ddpify.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None  # of each choice
    command = click.get_current_context().find_root().command
    click.echo(made(command, {}, "ddpify", "_DDPIFY_COMPLETE").source())
    return CLEAN


def rule_codes(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The codes that begin so; of several with commas the last is being written."""
    from ddpify.checking.codes import known

    before, comma, last = begun.rpartition(",")
    return [f"{before}{comma}{one}" for one in known() if one.startswith(last.upper())]
