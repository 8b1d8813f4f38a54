"""``ddpify convert-checkpoint``: flags in, exit code out."""

from __future__ import annotations

from pathlib import Path

import click

from ddpify.commands.shared import CLEAN, Stop


@click.command("convert-checkpoint")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace TARGET where it is there.")
def convert_checkpoint(source: Path, target: Path, force: bool) -> int:
    """Make a directory of shards of a whole checkpoint, or a whole one of a directory.

    SOURCE is a file that torch.save wrote, or a directory that `migrate --checkpoint sharded`
    lets a program write; TARGET becomes the other one, with the same values bit for bit, tensor
    by tensor.
    Exit code 0: written; 2: an error, nothing written.

    Example: ddpify convert-checkpoint runs/last.pt last-whole.pt
    """
    try:
        from ddpify.converting import ConversionError, convert
    except ModuleNotFoundError as error:
        raise Stop(
            f"convert-checkpoint needs {error.name}: pip install 'ddpify[runtime]'"
        ) from error
    try:
        convert(source, target, force)
    except ConversionError as error:
        raise Stop(str(error)) from error
    click.echo(f"Wrote {target}.")
    return CLEAN
