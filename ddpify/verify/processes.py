"""The processes of one launch: find all of them, make them say where they are, end them.

Ranks, the workers of data loaders and what a script starts may outlive their parents. So all
carry a mark in their environment, by which they are found even then.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import psutil

MARK: Final = "DDPIFY_VERIFY_LAUNCH"
PATIENCE: Final = 10.0  # seconds until every process that was killed is gone, or has dumped
_POLL: Final = 0.05


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP are a KeyboardInterrupt too, and only the first one counts.

    The later ones of an impatient user would hit the clearing up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _Once()
    before = {number: signal.getsignal(number) for number in _stopping()}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)


class _Once:
    def __init__(self) -> None:
        self._interrupted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt


def _stopping() -> list[signal.Signals]:
    """Handle signals by stopping; one that is to be ignored (nohup) stays so."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def members(mark: str) -> set[psutil.Process]:
    """Every living process of the launch."""
    marked = {process for process in psutil.process_iter() if _marked(process, mark)}
    for process in tuple(marked):
        with suppress(psutil.Error):
            marked.update(process.children(recursive=True))
    return {process for process in marked if _alive(process)}


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def end(mark: str) -> None:
    """Kill every process of the launch, and those they start meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while (found := members(mark)) and time.monotonic() < deadline:
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL)


def dump_stacks(ranks: Mapping[int, psutil.Process], out: Path) -> None:
    """Have every rank whose record has begun write ``rank<r>.stack``; wait until they have."""
    asked = []
    for rank, process in ranks.items():
        if begun(out, rank):
            with suppress(psutil.Error):
                process.send_signal(signal.SIGUSR1)
                asked.append(out / f"rank{rank}.stack")
    _settle(asked)


def begun(out: Path, rank: int) -> bool:
    """Whether the rank can be asked for its stack; before that it would not survive the signal."""
    return (out / f"rank{rank}.stack").exists()


def alone(process: int) -> dict[int, psutil.Process]:
    """The one process, as the rank that it is."""
    try:
        return {0: psutil.Process(process)}
    except psutil.Error:
        return {}


def launched(launcher: int) -> dict[int, psutil.Process]:
    """torchrun's ranks, which are its own children; *their* children look the same.

    torchrun itself is halted, lest it ends the ranks as soon as something happens to one.
    """
    found: dict[int, psutil.Process] = {}
    with suppress(psutil.Error):
        parent = psutil.Process(launcher)
        parent.suspend()
        for process in filter(_alive, parent.children()):
            with suppress(psutil.Error, KeyError, ValueError):
                found[int(process.environ()["RANK"])] = process
    return found


def _settle(files: list[Path]) -> None:
    """Wait until every file is there and has stopped growing."""
    deadline = time.monotonic() + PATIENCE
    sizes: list[int] = []
    while time.monotonic() < deadline:
        time.sleep(4 * _POLL)
        before, sizes = sizes, [file.stat().st_size if file.exists() else 0 for file in files]
        if all(sizes) and sizes == before:
            return
