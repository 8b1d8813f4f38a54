"""Processes that end, or find the disk full, at any of their operations on files."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

# What Python says before it does it; between two of these, a disk stays as it is.
_OPERATIONS = frozenset(
    "os.rename os.remove os.rmdir os.mkdir os.chmod os.chown os.symlink os.utime".split()
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


Events = Callable[[str, tuple[object, ...]], bool]


def _writes(event: str, arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if event == "open" else 0
    return isinstance(flags, int) and bool(flags & _WRITING)


def killed(work: Callable[[], object], survived: int) -> bool:
    """Whether ``work`` is cut off before operation number ``survived``; else it is done.

    As by SIGKILL: no handler runs, nothing is cleaned up.
    """
    return _cut_off(work, survived, lambda event, a: event in _OPERATIONS or _writes(event, a))


def killed_between_files(work: Callable[[], object]) -> None:
    """Cut off when one file has its new content, and the next one has not."""
    assert _cut_off(work, 1, lambda event, a: event == "os.rename" and "ddpify-new" in str(a[0]))


def _cut_off(work: Callable[[], object], survived: int, counts: Events) -> bool:
    left = survived

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if counts(event, arguments):
            if left == 0:
                os._exit(9)
            left -= 1

    return _in_child(work, count) != 0


def with_full_disk(work: Callable[[], object], survived: int) -> int:
    """What ``work`` returns if nothing can be made or written any more after ``survived`` times."""
    left = survived

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if _writes(event, arguments) or event in ("os.mkdir", "os.symlink"):
            if left <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left -= 1

    return _in_child(work, count)


def _in_child(work: Callable[[], object], hook: Callable[[str, tuple[object, ...]], None]) -> int:
    """In a process of its own: a hook stays for good."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        sys.addaudithook(hook)
        result = work()
        os._exit(result if isinstance(result, int) else 0)
    finally:
        os._exit(70)  # an exception is an end, too
