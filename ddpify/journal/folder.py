"""The folder ``.ddpify`` of a project: its parts, and who may write."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ddpify.journal.disk import sync_folder
from ddpify.journal.record import FILE, WriteError

with suppress(ImportError):  # Windows: that one ddpify writes at a time is the user's word
    import fcntl

NAME = ".ddpify"
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # of a project that was downloaded, whoever made it
_MOST = 10  # writes that can be undone, one after the other
_PATIENCE = 10.0  # seconds; a write takes less than one


@dataclass(frozen=True)
class WriteJournal:
    """That of the project at ``root``, whether it is there or not."""

    root: Path

    @property
    def home(self) -> Path:
        """The folder itself."""
        return self.root / NAME

    @property
    def preparing(self) -> Path:
        """Where backups are gathered, and what is thrown away."""
        return self.home / "preparing"

    @property
    def writing(self) -> Path:
        """There while files are exchanged."""
        return self.home / "writing"

    @property
    def kept(self) -> Path:
        """Backups that could not be put back."""
        return self.home / "kept"

    def records(self) -> list[Path]:
        """The writes that can be undone, the last one last."""
        return _numbered(self.home / "undo")

    def open(self) -> None:
        """The backups are complete: from now on files may be touched."""
        self._rename(self.preparing, self.writing)
        sync_folder(self.root)

    def finish(self, keep: bool) -> Path | None:
        """All files are exchanged. The record that can be undone, if it is to be kept."""
        if not keep:
            self.drop()
            return None
        target = self._next("undo")
        self._rename(self.writing, target)
        for old in self.records()[:-_MOST]:
            self._throw_away(old)
        return target

    def reopen(self, record: Path) -> None:
        """What was finished is to be taken back."""
        self._rename(record, self.writing)

    def set_aside(self) -> Path:
        """Not all could be taken back; what is left of the backups stays, under this name."""
        target = self._next("kept")
        self._rename(self.writing, target)
        return target

    def drop(self) -> None:
        """Nothing is to be finished or taken back any more."""
        self._throw_away(self.writing)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes into the project. The folder goes where it holds nothing at the end.

        Raises:
            WriteError: somebody does, or there can be no such folder.
        """
        with ExitStack() as stack:
            try:
                lock = self._take()
                stack.callback(os.close, lock)
                stack.callback(self._tidy)
                self._hide()
            except OSError as error:
                with suppress(OSError):
                    self.home.rmdir()
                why = f"{error.strerror}; old contents are kept there, so nothing was written"
                raise WriteError(f"{self.home}: cannot be made ({why})") from error
            yield

    def _hide(self) -> None:
        """From git; a file that an early end left empty is written again."""
        ignore = self.home / ".gitignore"
        if not ignore.is_symlink() and not (ignore.exists() and ignore.stat().st_size):
            ignore.write_text("# Made by ddpify, for `ddpify undo`.\n*\n")

    def _take(self) -> int:
        if self.home.is_symlink():
            raise WriteError(f"{self.home}: is a link; ddpify writes into a folder of that name")
        until = time.monotonic() + _PATIENCE
        while True:
            with suppress(FileNotFoundError):  # who had it before has just removed the folder
                self.home.mkdir(exist_ok=True)
                lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
                if _is_ours(lock) and _is_at(lock, self.home / "lock"):
                    return lock
                os.close(lock)
            if time.monotonic() > until:
                raise WriteError(f"{self.root}: another ddpify is writing there; try again later")
            time.sleep(0.05)

    def _tidy(self) -> None:
        with suppress(OSError):  # what stays is removed by the next command
            shutil.rmtree(self.preparing, ignore_errors=True)
            if not self.writing.exists() and not self.records() and not _numbered(self.kept):
                shutil.rmtree(self.home)

    def _next(self, part: str) -> Path:
        folder = self.home / part
        folder.mkdir(exist_ok=True)
        last = max((int(one.name) for one in _numbered(folder)), default=0)
        return folder / str(last + 1)

    def _throw_away(self, folder: Path) -> None:
        """First out of the way, at once; half a record is none."""
        shutil.rmtree(self.preparing, ignore_errors=True)
        self._rename(folder, self.preparing)
        shutil.rmtree(self.preparing, ignore_errors=True)

    def _rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)
        for folder in {source.parent, target.parent, self.home}:
            sync_folder(folder)


def near(paths: Iterable[Path]) -> list[WriteJournal]:
    """Those of the projects that hold ``paths``, and of projects right below a folder."""
    homes: dict[Path, None] = {}
    for path in paths:
        with suppress(ValueError):  # no path at all, which others say better
            absolute = Path(os.path.realpath(path))
            chain = [absolute, *absolute.parents]
            if os.path.isdir(absolute):
                chain += [one.parent for one in absolute.glob(f"*/{NAME}")]
            homes |= dict.fromkeys(one for one in chain if _is_there(one / NAME))
    return [WriteJournal(one) for one in homes]


def _is_there(folder: Path) -> bool:
    return os.path.isdir(folder) and not os.path.islink(folder)


def _numbered(folder: Path) -> list[Path]:
    try:
        names = [one for one in os.listdir(folder) if one.isdecimal()]
    except OSError:
        return []
    found = [folder / one for one in sorted(names, key=int)]
    return [one for one in found if (one / FILE).is_file()]


def _is_ours(lock: int) -> bool:
    """Whether nobody else holds it; where there are no locks, nobody ever does."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (OSError, NameError):
        return True
    return True


def _is_at(lock: int, path: Path) -> bool:
    """Whether the file is still the one under this name, and not one that was removed."""
    return os.path.samestat(os.fstat(lock), path.stat())
