"""One write into one project, in steps after each of which it may be cut off."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from ddpify.journal.disk import copy, give_owner, state_of, sync_folder, write_new
from ddpify.journal.folder import WriteJournal
from ddpify.journal.record import FILE, JournalEntry, JournalRecord, backup_of, below


@dataclass(frozen=True)
class Wanted:
    """What is to stand at ``target``: a file with this content, or a link that leads to ``aim``.

    A content that is a path is that of the file there. ``path`` is how the user knows the target;
    mode and owner are those of ``like``, if there is one.
    """

    path: str
    target: Path
    content: bytes | Path = b""
    like: Path | None = None
    aim: str = ""

    @cached_property
    def state(self) -> str:
        """As ``state_of`` will find it."""
        if self.aim:
            return f"link {self.aim}"
        content = self.content
        return sha256(content).hexdigest() if isinstance(content, bytes) else state_of(content)


@dataclass
class Transaction:
    """``command`` is the user's, if `ddpify undo` is to know it; ``folders`` are to be there, too.

    ``current`` is the path that is worked on, as the user knows it ("": none).
    """

    journal: WriteJournal
    files: Sequence[Wanted]
    command: str
    folders: Sequence[Path] = ()
    current: str = ""
    record: JournalRecord | None = None

    def prepare(self) -> None:
        """Keep what is there, and say what is going to be done; nothing is touched."""
        home = self.journal.preparing
        self.current = str(self.journal.home)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        token = secrets.token_hex(4)
        entries = [self._kept(file, number, token) for number, file in enumerate(self.files)]
        wanted = (*self.folders, *(file.target.parent for file in self.files))
        missing = {one for folder in wanted for one in _missing(folder)}
        folders = sorted(below(self.journal.root, one) for one in missing)
        made_in = self.journal.home.stat().st_ino
        self.record = JournalRecord.of(self.command, made_in, folders, entries)
        self.current = str(self.journal.home)
        write_new(home / FILE, self.record.dump())
        for folder, _, _ in os.walk(home):
            sync_folder(Path(folder))
        self.journal.open()
        self.current = ""

    def exchange(self) -> None:
        """All new contents beside their files, then each in the place of its file."""
        assert self.record is not None
        root = self.journal.root
        for folder in self.record.folders:
            self.current = folder
            (root / folder).mkdir()
        pairs = list(zip(self.files, self.record.entries, strict=True))
        for file, entry in pairs:
            self.current = file.path
            _stage(file, root / entry.staged)
        for file, entry in pairs:
            self.current = file.path
            os.replace(root / entry.staged, file.target)
        touched = {(root / folder).parent for folder in self.record.folders}
        for parent in touched | {file.target.parent for file in self.files}:
            sync_folder(parent)
        self.current = ""

    def finish(self) -> Path | None:
        """Where the old contents are kept, if ``ddpify undo`` is to know the command."""
        self.current = str(self.journal.home)
        return self.journal.finish(keep=bool(self.command))

    def _kept(self, file: Wanted, number: int, token: str) -> JournalEntry:
        self.current = file.path
        root = self.journal.root
        path, before = below(root, file.target), state_of(file.target)
        backup = backup_of(path, number) if before else ""
        if backup:
            kept = self.journal.preparing / backup
            kept.parent.mkdir(parents=True, exist_ok=True)
            copy(file.target, kept)
        staged = file.target.with_name(f".{file.target.name}.{token}.ddpify-new")
        return JournalEntry(path, below(root, staged), before, file.state, backup)


def _missing(folder: Path) -> Iterator[Path]:
    return (one for one in (folder, *folder.parents) if not one.exists())


def _stage(file: Wanted, staged: Path) -> None:
    if file.aim:
        staged.symlink_to(file.aim)
        return
    write_new(staged, file.content)
    if file.like is not None:
        shutil.copymode(file.like, staged)
        give_owner(file.like, staged)
