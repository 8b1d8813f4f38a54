"""Watches which files change, and keeps the user's own from being changed through a link."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.record import Recorder

# Name of the audit event -> the positions of the paths it changes. shutil.copyfile, move and
# copytree raise these or "open" themselves; only rmtree works below the level of paths.
_CHANGES = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "shutil.rmtree": (0,),
    "sqlite3.connect": (0,),
}
# What acts on the target of a link rather than on the link.
_THROUGH = {"os.truncate", "sqlite3.connect", "os.chmod", "os.utime"}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND


class FileWatch:
    """``watch`` is the folder whose files count; below it links to outside become copies."""

    def __init__(self, recorder: Recorder, watch: Path) -> None:
        self._recorder = recorder
        self._watch = watch.resolve()

    def start(self, patcher: Patcher) -> None:
        def saving(obj: Any, f: Any, *_: Any, **__: Any) -> None:
            self._change("torch.save", f, through=True, emptied=True)

        # torch.save opens its file in C++, where no audit event is raised.
        patcher.before(torch, "save", saving)
        setattr(torch.serialization, "save", torch.save)  # noqa: B010
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            letters = set(mode or "")
            if letters & set("wax+") or (not mode and flags & _WRITE_FLAGS):
                # The flags are known where Python asks the system, with a mode or without.
                emptied = "w" in letters or bool(not mode and flags & os.O_TRUNC)
                self._change("open", path, through=True, emptied=emptied)
        elif event in _CHANGES or event in _THROUGH:
            for position in _CHANGES.get(event, (0,)):
                self._change(event, arguments[position], through=event in _THROUGH)

    def _change(
        self, operation: str, path: Any, *, through: bool = False, emptied: bool = False
    ) -> None:
        if self._recorder.quiet or not isinstance(path, (str, bytes, os.PathLike)):
            return  # or it is an open file descriptor
        absolute = Path(os.path.abspath(os.fsdecode(path)))
        if not self._counts(absolute):
            return
        with self._recorder.own():
            existed = os.path.lexists(absolute)
            self._make_own(absolute, through, emptied)
        if operation in _CHANGES or operation in ("open", "torch.save"):
            relative = absolute.relative_to(self._watch).as_posix()
            self._recorder.note_anywhere(
                "file", operation=operation, path=relative, existed=existed
            )

    def _counts(self, path: Path) -> bool:
        inside = path.is_relative_to(self._watch) and not path.is_relative_to(self._recorder.out)
        return inside and "__pycache__" not in path.parts

    def _make_own(self, path: Path, through: bool, emptied: bool) -> None:
        """Replace links to outside on the way to ``path``, and itself if it is written through."""
        folders = path.relative_to(self._watch).parents
        ways = [self._watch / part for part in reversed(folders)]
        for place in [*ways, path] if through else ways:
            # a folder that is not there may be just what another rank is replacing
            if self._leads_out(place) or (place != path and not os.path.lexists(place)):
                with self._alone():
                    if self._leads_out(place):  # still, now that no other rank changes it
                        _replace_link(place, emptied and place == path)

    def _leads_out(self, place: Path) -> bool:
        return place.is_symlink() and not place.resolve().is_relative_to(self._watch)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            import fcntl
        except ImportError:  # Windows; a scratch copy has no links there
            yield
            return
        lock = os.open(self._recorder.out / "links.lock", os.O_WRONLY | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _replace_link(link: Path, emptied: bool) -> None:
    """Put a copy of the target in its place; of a folder, one with links to its entries."""
    target = link.resolve()
    if emptied or not target.exists():
        link.unlink()
        return
    copy = link.with_name(f"{link.name}.{os.getpid()}.own")
    if target.is_dir():
        copy.mkdir()
        for entry in target.iterdir():
            (copy / entry.name).symlink_to(entry)
        link.unlink()  # a folder cannot be renamed onto a link
    else:
        shutil.copy2(target, copy)
    copy.replace(link)
