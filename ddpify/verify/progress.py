"""Shows on standard error how far a verification is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as Display
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ddpify.verify.read import Progress

Report = Callable[[str, Progress], None]


@contextmanager
def shown() -> Iterator[Report]:
    """A line for each run: live on a terminal, else one line when it starts."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Display(*columns, console=console, transient=True) as display:
        yield _Live(display)


class _Lines:
    def __init__(self) -> None:
        self._started: set[str] = set()

    def __call__(self, what: str, progress: Progress) -> None:
        if what not in self._started:
            self._started.add(what)
            print(f"ddpify: running the {what}", file=sys.stderr, flush=True)


class _Live:
    def __init__(self, display: Display) -> None:
        self._display = display
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, progress: Progress) -> None:
        if what not in self._tasks:
            for task in self._tasks.values():
                self._display.stop_task(task)
            self._tasks[what] = self._display.add_task(what, total=None)
        loss = "" if progress.loss is None else f", loss {progress.loss:.4g}"
        state = f"{what}: {progress.steps} steps{loss}" if progress.events else f"{what}: starting"
        self._display.update(self._tasks[what], description=state)
