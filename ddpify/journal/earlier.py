"""A copy of a project, as the project was before ddpify last wrote into it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from ddpify.journal.folder import WriteJournal
from ddpify.journal.record import JournalRecord, WriteError


def put_back(root: Path, copied: Path) -> str:
    """Put the backups of the last write into ``copied``, a copy of ``root``.

    Returns what wrote it, in the user's words; nothing is done, and "" returned, where no write is
    recorded, or one of files elsewhere, to which links lead. What was changed since in these files
    is not in the copy.
    """
    journal = WriteJournal(root)
    with suppress(WriteError, OSError):
        for folder in journal.records()[-1:]:
            record = JournalRecord.load(folder, journal.home)
            if any(Path(entry.path).is_absolute() for entry in record.entries):
                return ""
            for entry in record.entries:
                (copied / entry.path).unlink(missing_ok=True)
                if entry.backup:
                    shutil.copy2(folder / entry.backup, copied / entry.path)
            return record.command
    return ""
