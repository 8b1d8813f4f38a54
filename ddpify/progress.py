"""A line on standard error that says how far a command is; gone when it is done.

It is there on a terminal only, and only for what takes its time, so that a command that answers
at once loads nothing for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING

from ddpify.steps import StepListener, untold
from ddpify.terminal import is_live

if TYPE_CHECKING:
    from rich.progress import Progress

_AFTER = 1.0  # seconds, until which nobody wonders


@contextmanager
def progress(quiet: bool = False) -> Iterator[StepListener]:
    """Shows what it is told, while the block runs."""
    if quiet or not is_live(sys.stderr):
        yield untold
        return
    line = _Line()
    timer = Timer(_AFTER, line.begin)
    timer.daemon = True
    timer.start()
    try:
        yield line.told
    finally:
        timer.cancel()
        line.end()


class _Line:
    """Begun by another thread, as this one is in the midst of what takes so long."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._display: Progress | None = None
        self._over = False
        self._state: tuple[str, int, int] = ("Looking for files", 0, 0)

    def told(self, what: str, done: int = 0, of: int = 0) -> None:
        """As ``StepListener``."""
        self._state = what, done, of
        self._show()

    def begin(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)  # names of files, as they are
        columns = (SpinnerColumn(), text, TimeElapsedColumn())
        console = Console(stderr=True)
        with self._lock:
            if self._over:
                return
            self._display = Progress(
                *columns, console=console, transient=True, refresh_per_second=4
            )
            self._display.add_task("", total=None)
            self._show()
            self._display.start()

    def end(self) -> None:
        with self._lock:
            self._over = True
            if self._display is not None:
                self._display.stop()

    def _show(self) -> None:
        if self._display is not None:
            what, done, of = self._state
            count = f" ({done + 1} of {of})" if of else ""
            self._display.update(self._display.task_ids[0], description=f"{what}{count}")
