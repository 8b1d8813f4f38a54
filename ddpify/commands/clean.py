"""``ddpify clean``: what ddpify left is taken away."""

from __future__ import annotations

from pathlib import Path

import click

from ddpify.commands.shared import CLEAN, Stop


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDERS]...")
def clean(paths: tuple[Path, ...]) -> int:
    """Remove the caches of `check` in FOLDERS (default: the current one) and their projects.

    The next check reads everything anew. What `verify` keeps is named, and stays.
    """
    from ddpify.checking.cleaning import caches, remove
    from ddpify.checking.model import CheckError
    from ddpify.report.concise import plural
    from ddpify.roots import shown

    try:
        found = caches(paths or (Path(),))
        for cache in found:
            click.echo(f"Removed {shown(cache)} ({remove(cache) / 1024:.0f} KiB).")
    except CheckError as error:
        raise Stop(str(error)) from error
    if not found:
        click.echo("There is no cache here.")
    kept = _kept()
    if kept:
        click.echo(
            f"Left alone: {plural(len(kept), 'folder')} of `verify`, kept, of a killed run or in "
            f"use: {kept[0].with_name('ddpify-verify-*')}"
        )
    return CLEAN


def _kept() -> list[Path]:
    """Copies that `verify` works in: which of them somebody needs is not known."""
    from tempfile import gettempdir

    return [one for one in Path(gettempdir()).glob("ddpify-verify-*") if one.is_dir()]
