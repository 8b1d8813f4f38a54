"""Files and folders that are still there after the power failed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

_ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_PART = 1 << 20  # bytes that are read at once


def state_of(path: Path) -> str:
    """What stands at a path, in a word that differs when it does; "" where nothing is."""
    try:
        if path.is_symlink():
            return f"link {os.readlink(path)}"
        return "folder" if path.is_dir() else _digest(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _digest(path: Path) -> str:
    found = sha256()
    with path.open("rb") as stream:
        while part := stream.read(_PART):
            found.update(part)
    return found.hexdigest()


def is_writable(path: Path) -> bool:
    """Also for the superuser, whom permission bits do not stop: they are the user's word."""
    return bool(path.stat().st_mode & _ANY_WRITE) and os.access(path, os.W_OK)


def write_new(path: Path, content: bytes | Path) -> None:
    """A file that was not there, and is on the disk when this returns.

    A path as content stands for that of the file there.
    """
    with path.open("xb") as stream:
        if isinstance(content, bytes):
            stream.write(content)
        else:
            with content.open("rb") as source:
                shutil.copyfileobj(source, stream)
        stream.flush()
        os.fsync(stream.fileno())


def copy(source: Path, target: Path) -> None:
    """With mode, times and, where that is allowed, owner; a link stays one."""
    shutil.copy2(source, target, follow_symlinks=False)
    give_owner(source, target)
    if not target.is_symlink():
        _sync(target)


def give_owner(source: Path, target: Path) -> None:
    """The owner of ``source``, where that is allowed, or another system than Unix has none."""
    owner = source.lstat()
    with suppress(PermissionError, AttributeError):
        os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)


def move(source: Path, target: Path) -> None:
    """Put a file in the place of another one: at once, also from another disk."""
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = target.with_name(f".{target.name}.ddpify-back")
        beside.unlink(missing_ok=True)
        copy(source, beside)
        os.replace(beside, target)


def sync_folder(folder: Path) -> None:
    """What was made, renamed or removed in it stays so."""
    with suppress(PermissionError, NotADirectoryError, FileNotFoundError):
        _sync(folder)


def _sync(path: Path) -> None:
    if os.name == "nt":  # which has this for files only that are open to be written
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
