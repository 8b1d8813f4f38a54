"""``ddpify undo``: the last migration, taken back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpify.commands.shared import CLEAN, Stop, mend

if TYPE_CHECKING:
    from ddpify.journal.folder import WriteJournal
    from ddpify.journal.record import JournalRecord
    from ddpify.journal.restore import Undone


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option("--list", "only_list", is_flag=True, help="Show what can be taken back, last first.")
def undo(path: Path, only_list: bool) -> int:
    """Take back the last change that ddpify wrote into the project of PATH.

    That is `migrate --inplace`, `check --fix` or `check --add-noqa`; again takes back the one
    before. Files are as they were to the byte, new ones are removed. Where one was changed since,
    nothing is touched. The default for PATH is the current folder. Exit code 0: taken back, or
    there is nothing to; 2: refused.
    """
    from ddpify.journal.record import WriteError
    from ddpify.journal.restore import undo as take_back

    if not path.exists():
        raise Stop(f"{path}: no such file or folder")
    mend([path])
    try:
        found = _records(path)
        if only_list:
            _show([(record, folder) for record, _, folder in found])
        undone = take_back(*found[0][1:]) if found and not only_list else None
    except WriteError as error:
        raise Stop(str(error)) from error
    if undone:
        _tell(undone)
    elif not found:
        click.echo("Nothing to undo.")
    return CLEAN


def _records(path: Path) -> list[tuple[JournalRecord, WriteJournal, Path]]:
    """What can be taken back in the project of ``path``, the last one first."""
    from ddpify.journal.folder import near
    from ddpify.journal.record import JournalRecord
    from ddpify.roots import project_root

    project = project_root(path / "any" if path.is_dir() else path)
    found = [
        (JournalRecord.load(folder, journal.home), journal, folder)
        for journal in near([path])
        for folder in journal.records()
    ]
    found = [one for one in found if one[0].is_about(project, one[1].root)]
    return sorted(found, key=lambda one: one[0].time, reverse=True)


def _show(found: list[tuple[JournalRecord, Path]]) -> None:
    from ddpify.report.concise import plural
    from ddpify.roots import shown

    for record, folder in found:
        files = plural(len(record.entries), "file")
        click.echo(f"{record.when}  {record.command}  ({files}; backup: {shown(folder)})")


def _tell(undone: Undone) -> None:
    from ddpify.roots import shown

    said = f"`{undone.record.command}` ({undone.record.when})"
    if not undone.restored and not undone.removed:
        click.echo(f"{said} was taken back already.")
        return
    click.echo(f"Took back {said}:")
    for path in undone.restored:
        click.echo(f"  {shown(path)}: as it was")
    for path in undone.removed:
        click.echo(f"  {shown(path)}: removed")
