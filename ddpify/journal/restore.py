"""The way back of a write: because it failed, was cut off, or is undone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ddpify.journal.disk import is_writable, move, state_of, sync_folder
from ddpify.journal.folder import WriteJournal
from ddpify.journal.record import JournalEntry, JournalRecord, WriteError
from ddpify.roots import shown


def take_back(journal: WriteJournal) -> tuple[str, ...]:
    """Every file as it was before the write that is open; those that somebody changed stay.

    These are named. May be cut off and called again.
    """
    root, folder = journal.root, journal.writing
    record = JournalRecord.load(folder, journal.home)
    left = [one for one in reversed(record.entries) if not _restored(root, folder, one)]
    for name in reversed(record.folders):
        with suppress(OSError):  # somebody else put something into it
            (root / name).rmdir()
    for parent in {(root / one.path).parent for one in record.entries}:
        sync_folder(parent)
    if any(one.backup for one in left):
        journal.set_aside()
    else:
        journal.drop()
    return tuple(one.path for one in reversed(left))


def settle(journal: WriteJournal) -> str:
    """Finish or take back what was cut off; call it under the lock. What was done, or ""."""
    if not journal.writing.exists():
        return ""
    record = JournalRecord.load(journal.writing, journal.home)
    said = f"`{record.command or 'a write'}` ({record.when}) was cut off"
    try:
        if all(state_of(journal.root / one.path) == one.after for one in record.entries):
            journal.finish(keep=bool(record.command))
            return f"{said} when all its files were written: it is complete."
        left = take_back(journal)
    except OSError as error:
        why = f"{said} and cannot be taken back ({error.strerror})"
        raise WriteError(f"{error.filename or journal.root}: {why}") from error
    if not left:
        return f"{said}; all files are as they were before."
    names = ", ".join(shown(journal.root / one) for one in left)
    return f"{said}; all is as before but what changed since: {names} ({shown(journal.kept)})."


def settled(journal: WriteJournal) -> str:
    """The same for whoever has no lock yet, and garbage goes. Raises WriteError."""
    cut_off = journal.writing.exists()
    if not cut_off and not journal.preparing.exists() and journal.records():
        return ""
    try:
        with journal.locked():
            return settle(journal)
    except WriteError:
        if cut_off:
            raise
        return ""  # garbage that only others may remove


@dataclass(frozen=True)
class Undone:
    """A command that was taken back, and the files that are as before and those that are gone."""

    record: JournalRecord
    restored: tuple[Path, ...]
    removed: tuple[Path, ...]


def undo(journal: WriteJournal, folder: Path) -> Undone:
    """Take a write back, exactly; ``folder`` is that of its record.

    Raises:
        WriteError: a file has changed since, so that this change would be lost. Nothing is touched.
    """
    with journal.locked():
        settle(journal)
        record = JournalRecord.load(folder, journal.home)
        current = journal.root
        try:
            due = []
            for one in record.entries:
                current = journal.root / one.path
                if _is_due(current, one, record, folder):
                    due.append(one)
            journal.reopen(folder)
            take_back(journal)
        except OSError as error:
            what = f"{shown(current)}: `{record.command}` cannot be undone"
            raise WriteError(f"{what} ({error.strerror})") from error
    restored = tuple(journal.root / one.path for one in due if one.before)
    return Undone(record, restored, tuple(journal.root / one.path for one in due if not one.before))


def _is_due(file: Path, entry: JournalEntry, record: JournalRecord, folder: Path) -> bool:
    """Whether the file is as it was written, and not as before. Raises WriteError if neither."""
    now = state_of(file)
    if now == entry.before:
        return False
    backup = folder / entry.backup
    if now != entry.after:
        kept = f"; what it was before is in {shown(backup)}" if entry.backup else ""
        why = f"changed since `{record.command}` wrote it"
        raise WriteError(f"{shown(file)}: {why}, so nothing was undone{kept}")
    if entry.backup and state_of(backup) != entry.before:
        raise WriteError(f"{shown(backup)}: gone or changed, so nothing was undone")
    if not is_writable(file) or not is_writable(file.parent):
        raise WriteError(f"{shown(file)}: it or its folder is read-only; make both writable first")
    return True


def _restored(root: Path, folder: Path, entry: JournalEntry) -> bool:
    """Whether a file is as before."""
    (root / entry.staged).unlink(missing_ok=True)
    target = root / entry.path
    now = state_of(target)
    if now == entry.before:
        return True
    if now != entry.after:
        return False
    if entry.before:
        move(folder / entry.backup, target)
    else:
        target.unlink()
    return True
