"""Put changes on disk, all of them or none.

A half-migrated project is worse than none: every new content is written next to its file
first, then the files are exchanged, and any failure on the way brings the old ones back.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ddpify.plan import Change

_ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class WriteError(Exception):
    """Nothing was written; the message is one sentence for the user."""


@dataclass(frozen=True)
class _File:
    """A file that is to stand at ``target``; its mode is that of ``like``, if there is one."""

    path: str
    target: Path
    content: bytes
    like: Path | None = None


def apply(changes: Iterable[Change], root: Path) -> None:
    """Write the changes into the project, or nothing.

    Raises:
        WriteError: a file cannot be written, or is no longer what was analysed.
    """
    files = []
    for change in changes:
        target = Path(os.path.realpath(root / change.path))
        _check_unchanged(change, target)
        files.append(_File(change.path, target, change.after, target if target.exists() else None))
    _install(files)


def write_to(
    changes: Iterable[Change], root: Path, out: Path, also: Iterable[str], force: bool = False
) -> None:
    """Write the migrated project to ``out``: the changes, and the files ``also`` as they are.

    Raises:
        WriteError: a file there has other content (and not ``force``), or cannot be written.
    """
    contents = {path: _read(root / path, path) for path in also}
    contents |= {change.path: change.after for change in changes}
    files = []
    for path, content in sorted(contents.items()):
        source = root / path
        target = Path(os.path.realpath(out / path))
        if not force and target.exists() and _read(target, str(target)) != content:
            raise WriteError(f"{target}: exists with other content; use --force to overwrite it")
        files.append(_File(str(target), target, content, source if source.exists() else None))
    _install(files)


def dirty_files(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    """Which of these files git reports as changed or untracked; none without git."""
    prefix = _git(root, "rev-parse", "--show-prefix")
    status = _git(root, "status", "--porcelain", "-z", "--no-renames", "-uall", "--", ".")
    if prefix is None or status is None:
        return ()
    inside = prefix.rstrip("\n")
    changed = {entry[3:].removeprefix(inside) for entry in status.split("\0") if entry}
    return tuple(sorted(set(paths) & changed))


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    except OSError:
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None


def _check_unchanged(change: Change, target: Path) -> None:
    if change.before is None and target.exists():
        raise WriteError(f"{change.path}: exists already and is not overwritten")
    if change.before is not None and _read(target, change.path) != change.before:
        raise WriteError(f"{change.path}: has changed since it was analysed; run ddpify again")


def _read(file: Path, path: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise WriteError(f"{path}: cannot be read ({error.strerror})") from error


def _install(files: Sequence[_File]) -> None:
    """Check, stage, exchange; what was done is undone unless all of it is."""
    for file in files:
        _check_writable(file)
    _check_distinct(files)
    current = ""
    try:
        with ExitStack() as cleanup, ExitStack() as undo:
            staged = []
            for file in files:
                current = file.path
                _make_folders(file.target.parent, undo)
                staged.append((_stage(file, undo, cleanup), file))
            for temporary, file in staged:
                current = file.path
                _exchange(temporary, file.target, undo, cleanup)
            undo.pop_all()
    except OSError as error:
        raise WriteError(f"{current}: cannot be written ({error.strerror})") from error


def _check_writable(file: _File) -> None:
    """Also for the superuser, whom permission bits do not stop: they are the user's word."""
    folder = next(parent for parent in file.target.parents if parent.exists())
    if file.target.exists() and not file.target.is_file():
        raise WriteError(f"{file.path}: is not a file")
    if not folder.is_dir():
        raise WriteError(f"{file.path}: {folder} is not a folder")
    if file.target.exists() and not _is_writable(file.target):
        raise WriteError(f"{file.path}: is read-only; make it writable first")
    if not _is_writable(folder):
        raise WriteError(f"{file.path}: its folder {folder} is read-only; make it writable first")


def _check_distinct(files: Sequence[_File]) -> None:
    """Two paths may be one file, by a link; it cannot have both contents."""
    by_target: dict[Path, _File] = {}
    for file in files:
        other = by_target.setdefault(file.target, file)
        if other.content != file.content:
            raise WriteError(f"{file.path}: is the same file as {other.path}; migrate one of them")


def _is_writable(path: Path) -> bool:
    return bool(path.stat().st_mode & _ANY_WRITE) and os.access(path, os.W_OK)


def _make_folders(folder: Path, undo: ExitStack) -> None:
    missing = [folder, *folder.parents]
    for one in reversed([path for path in missing if not path.exists()]):
        one.mkdir()
        undo.callback(one.rmdir)


def _stage(file: _File, undo: ExitStack, cleanup: ExitStack) -> Path:
    """The new content beside its target, under the target's mode and owner."""
    temporary = _beside(file.target, "new")
    with temporary.open("xb") as stream:  # from here on it is ours to remove
        for stack in (undo, cleanup):
            stack.callback(temporary.unlink, missing_ok=True)
        stream.write(file.content)
    if file.like is not None:
        shutil.copymode(file.like, temporary)
        owner = file.like.stat()
        with suppress(PermissionError):
            os.chown(temporary, owner.st_uid, owner.st_gid)
    return temporary


def _exchange(temporary: Path, target: Path, undo: ExitStack, cleanup: ExitStack) -> None:
    if target.exists():
        backup = _beside(target, "old")
        backup.touch(exist_ok=False)
        cleanup.callback(backup.unlink, missing_ok=True)
        shutil.copy2(target, backup)
        undo.callback(os.replace, backup, target)
    else:
        undo.callback(target.unlink, missing_ok=True)
    os.replace(temporary, target)


def _beside(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.ddpify-{kind}")
