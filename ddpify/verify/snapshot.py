"""The state of a scratch copy before a run: what did the run leave, and back to the start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


class ScratchError(Exception):
    """No copy could be made; one sentence for the user."""


@contextmanager
def explained(where: Path) -> Iterator[None]:
    """Turn what the file system refuses into one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScratchError(f"{error.filename or where}: cannot be copied: {reason}") from error


@dataclass(frozen=True)
class State:
    """``aim`` is what a link points to; size (bytes) and time (ns) of a link are its target's."""

    folder: bool = False
    size: int = 0
    modified: int = 0
    aim: str = ""


@dataclass(frozen=True)
class Snapshot:
    """Paths (posix, relative) below the copy; ``store`` holds the files' contents, if kept."""

    states: Mapping[str, State]
    store: Path | None = None


def snapshot(copy: Path, store: Path | None = None) -> Snapshot:
    """The state of ``copy``; its files' contents go to ``store``. Raises ScratchError."""
    with explained(copy):
        states = {path: _state(copy / path) for path in _paths(copy)}
        if store is not None:
            for path, state in states.items():
                if not state.folder and not state.aim:
                    (store / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(copy / path, store / path)
    return Snapshot(states, store)


def left_behind(copy: Path, before: Snapshot) -> tuple[str, ...]:
    """The files that were made or changed since, and still exist."""
    with explained(copy):
        now = {path: _state(copy / path) for path in _paths(copy)}
    return tuple(
        path for path, state in now.items() if not state.folder and _changed(path, state, before)
    )


def restore(copy: Path, before: Snapshot) -> None:
    """Bring the copy back. Needs a snapshot with a store. Raises ScratchError."""
    assert before.store is not None
    with explained(copy):
        for path in reversed(list(_paths(copy))):
            if before.states.get(path) != _state(copy / path):
                _remove(copy / path, keep=before.states.get(path, State()).folder)
        for path, state in before.states.items():
            _put_back(copy / path, state, before.store / path)


def _paths(folder: Path, prefix: str = "") -> Iterator[str]:
    """Everything below, parents first; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name != "__pycache__":
                yield prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    yield from _paths(Path(entry.path), f"{prefix}{entry.name}/")


def _state(path: Path) -> State:
    aim = os.readlink(path) if path.is_symlink() else ""
    if path.is_dir():
        return State(folder=not aim, aim=aim)
    status = path.stat() if path.exists() else path.lstat()
    return State(False, status.st_size, status.st_mtime_ns, aim)


def _changed(path: str, now: State, before: Snapshot) -> bool:
    """A link that was replaced by a copy of its target, and then not written to, is as it was."""
    then = before.states.get(path) or _behind_link(path, before)
    return then is None or (now.size, now.modified) != (then.size, then.modified)


def _behind_link(path: str, before: Snapshot) -> State | None:
    """What stood at a path below a folder that was one link."""
    for parent in PurePosixPath(path).parents:
        state = before.states.get(str(parent))
        if state is not None and state.aim:
            original = Path(state.aim) / PurePosixPath(path).relative_to(parent)
            return _state(original) if original.exists() else None
    return None


def _remove(path: Path, *, keep: bool) -> None:
    """``keep``: it was a folder, so it is emptied by the removal of what is new in it."""
    if path.is_dir() and not path.is_symlink():
        if not keep:
            shutil.rmtree(path)
    else:
        path.unlink()


def _put_back(path: Path, state: State, stored: Path) -> None:
    if path.is_symlink() or path.exists():
        return
    if state.folder:
        path.mkdir()
    elif state.aim:
        path.symlink_to(state.aim)
    else:
        shutil.copy2(stored, path)
