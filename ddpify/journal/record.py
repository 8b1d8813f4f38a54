"""What one write does to each file, as it is kept on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

FILE = "journal.json"
BACKUPS = "before"


class WriteError(Exception):
    """Nothing was written; the message is one sentence for the user."""


@dataclass(frozen=True)
class JournalEntry:
    """One file. Paths are relative to the project, or absolute where it lies outside.

    ``before`` and ``after`` are states (``disk.state_of``); ``staged`` is where the new content
    waits, ``backup`` where the old one is kept, below the record ("": there was none).
    """

    path: str
    staged: str
    before: str
    after: str
    backup: str


@dataclass(frozen=True)
class JournalRecord:
    """One write: the command in the user's words, when, new folders (parents first), files.

    ``made_in`` is the number of the folder ``.ddpify`` on its disk, which a copy has not.
    """

    command: str
    time: str
    made_in: int
    folders: tuple[str, ...]
    entries: tuple[JournalEntry, ...]

    @classmethod
    def of(
        cls, command: str, made_in: int, folders: Sequence[str], entries: Sequence[JournalEntry]
    ) -> JournalRecord:
        """The record of a write that is about to begin."""
        now = datetime.now(timezone.utc).isoformat()
        return cls(command, now, made_in, tuple(folders), tuple(entries))

    @classmethod
    def load(cls, folder: Path, home: Path) -> JournalRecord:
        """That in ``folder``, which is a part of ``home``, the folder ``.ddpify`` of a project.

        Raises WriteError where it cannot be read, or was made elsewhere: what came with a project
        that was downloaded may say of any file what it had been, its author's content for one.
        """
        try:
            data: dict[str, Any] = json.loads((folder / FILE).read_bytes())
            entries = tuple(JournalEntry(**one) for one in data["entries"])
            folders = tuple(data["folders"])
            found = cls(data["command"], data["time"], data["made_in"], folders, entries)
            found._check()
            ours = found.made_in == home.stat().st_ino
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WriteError(f"{folder}: cannot be read; move it away") from error
        if not ours:
            raise WriteError(f"{folder}: was not made in this folder, but copied; move it away")
        return found

    def _check(self) -> None:
        """Whether all is of its type, which JSON does not say. Raises TypeError or ValueError."""
        texts = [value for entry in self.entries for value in astuple(entry)]
        if "\0" in "".join((self.command, *self.folders, *texts)):
            raise ValueError("no path has a null in it")
        datetime.fromisoformat(self.time)

    def dump(self) -> bytes:
        """The content of the file."""
        return (json.dumps({"schema": 1, **asdict(self)}, indent=1) + "\n").encode()

    def is_about(self, folder: Path, root: Path) -> bool:
        """Whether one of the files lies in ``folder``; ``root`` is where the record belongs."""
        return any((root / one.path).is_relative_to(folder) for one in self.entries)

    @property
    def when(self) -> str:
        """The time as people read it, where they are."""
        return datetime.fromisoformat(self.time).astimezone().strftime("%Y-%m-%d %H:%M")


def below(root: Path, path: Path) -> str:
    """A path as a record holds it, so that the project may be moved."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def backup_of(path: str, number: int) -> str:
    """Where the old content of a file is kept: under its own name, which people look for."""
    if os.path.isabs(path):
        return f"{BACKUPS}/outside/{number}/{os.path.basename(path)}"
    return f"{BACKUPS}/{path}"
