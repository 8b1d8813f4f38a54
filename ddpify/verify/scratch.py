"""Scratch copies of a project: a program runs and writes there, and the user's files stay.

Large files and folders of data are linked, so that gigabytes cost nothing.
"""

from __future__ import annotations

import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ddpify.belongings import MANY as MANY
from ddpify.belongings import aim, is_data, left_out
from ddpify.verify.snapshot import explained

SMALL: Final = 1 << 20  # bytes; larger files are linked
NEIGHBOURS: Final = 500  # beside the project; a parent with more is not a folder of projects


def copy_project(root: Path, into: Path) -> Path:
    """Copy the project to ``into/<its name>``, with links to its neighbours beside it.

    Raises ScratchError.
    """
    root = root.resolve()
    target = place(root, into)
    merge(root, target)
    return target


def place(root: Path, into: Path) -> Path:
    """An empty folder for a copy of ``root``, beside which ``../data`` is found as it was.

    Raises ScratchError.
    """
    target = into / (root.name or "project")
    with explained(into):
        target.mkdir(parents=True)
        for neighbour in _neighbours(root):
            if not into.resolve().is_relative_to(neighbour):
                (into / neighbour.name).symlink_to(neighbour)
    return target


def merge(root: Path, target: Path, without: frozenset[Path] = frozenset()) -> None:
    """Add to ``target`` what is not there yet; of ``without`` nothing. Raises ScratchError.

    ``without`` are absolute paths below ``root``, which is resolved.
    """
    with explained(root):
        target.mkdir(parents=True, exist_ok=True)
        _Copying(root, target, without | {target.resolve().parent}).folder(root)


def _neighbours(root: Path) -> list[Path]:
    """What ``../name`` may mean to the project; nothing in folders that everybody shares."""
    parent = root.parent
    if parent == Path(parent.anchor) or _shared(parent):
        return []
    found = [path for path in parent.iterdir() if path != root]
    return sorted(found) if len(found) <= NEIGHBOURS else []


def _shared(folder: Path) -> bool:
    mode = folder.stat().st_mode
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


@dataclass(frozen=True)
class _Copying:
    root: Path
    target: Path
    without: frozenset[Path]

    def folder(self, folder: Path, *, data: bool = False) -> None:
        """``data``: the folder would be one link, were there not something to leave out of it."""
        entries = sorted(folder.iterdir())
        if not entries:
            self._to(folder).mkdir(parents=True, exist_ok=True)
        for path in entries:
            if path not in self.without and not left_out(path):
                self._entry(path, data)

    def _to(self, path: Path) -> Path:
        return self.target / path.relative_to(self.root)

    def _entry(self, path: Path, data: bool) -> None:
        """Write an entry; one that is there already stays: it comes from the exported revision."""
        target = self._to(path)
        if path.is_dir() and not path.is_symlink():
            if not _taken(target) or (target.is_dir() and not target.is_symlink()):
                self._folder(path, target, data or is_data(path))
        elif not _taken(target) and (path.is_symlink() or path.is_file()):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file(path, target, data)

    def _folder(self, path: Path, target: Path, data: bool) -> None:
        if data and not target.exists() and not self._partly(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
        else:
            self.folder(path, data=data)

    def _partly(self, folder: Path) -> bool:
        return any(path.is_relative_to(folder) for path in self.without)

    def _file(self, path: Path, target: Path, data: bool) -> None:
        if path.is_symlink():
            target.symlink_to(aim(path, self.root))
        elif data or (path.stat().st_size > SMALL and path.suffix != ".py"):
            target.symlink_to(path)
        else:
            shutil.copy2(path, target)


def _taken(path: Path) -> bool:
    return path.is_symlink() or path.exists()
