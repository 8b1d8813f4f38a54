"""The record of one rank: a line for each event, written at once, and the signatures' numbers.

Every line is one unbuffered write, so that what a killed process did can still be read.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from ddpify.verify.observer.signature import raw_bytes

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class StopRun(BaseException):
    """Ends the program after the last step asked for; no handler of ``Exception`` sees it."""


class Recorder:
    """Writes ``rank{r}.jsonl``, ``.f64`` (signatures), ``.now`` (how far it is) and ``.stack``."""

    def __init__(self, out: Path, rank: int) -> None:
        self.rank = rank
        self.out = out.resolve()
        self.steps = 0
        self.loss: float | None = None  # the latest
        self.spent = 0.0  # seconds that observing itself took, of the thread that trains
        self.began = time.perf_counter()  # all processes of a machine share this clock
        self._process = os.getpid()
        self._numbers = 0
        self._events = 0
        self._local = threading.local()
        self.out.mkdir(parents=True, exist_ok=True)
        self._lines, self._values = (
            os.open(self.path(end), _APPEND, 0o644) for end in ("jsonl", "f64")
        )
        self.path("ended").unlink(missing_ok=True)  # of an earlier run
        self._now = os.open(self.path("now"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def path(self, ending: str) -> Path:
        return self.out / f"rank{self.rank}.{ending}"

    @property
    def quiet(self) -> bool:
        """Whether this thread is in the observer's own work, of which nothing is recorded."""
        return bool(getattr(self._local, "depth", 0))

    @property
    def forked(self) -> bool:
        """Whether this is a child (a worker of a loader) of the process that is recorded."""
        return os.getpid() != self._process

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def now(self) -> float:
        """Seconds since the run began, without what observing took."""
        return self.elapsed - self.spent

    @contextmanager
    def own(self) -> Iterator[None]:
        """The observer's own work: not recorded, and not part of the steps' time."""
        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        start = time.perf_counter()
        try:
            yield
        finally:
            self._local.depth = depth
            if depth == 0:
                self.spent += time.perf_counter() - start

    def note(self, kind: str, **detail: Any) -> int:
        """Write one event; returns its number, which its ``leave`` will name."""
        if self.quiet or self.forked:
            return 0
        self._events += 1
        self._write(kind, detail)
        progress = f"{self._events} {self.steps} {self.loss}".ljust(64).encode()
        os.pwrite(self._now, progress, 0)
        return self._events

    def note_anywhere(self, kind: str, **detail: Any) -> None:
        """The same, also from a forked worker: such lines stand alone and need no number."""
        if not self.quiet:
            self._write(kind, detail) if self.forked else self.note(kind, **detail)

    @contextmanager
    def waiting(self, kind: str, **detail: Any) -> Iterator[None]:
        """Written when a collective is entered and when it is left, or left by an exception."""
        number = self.note(kind, **detail)
        try:
            yield
        except BaseException:
            self.note("leave", of=number, done=False)
            raise
        self.note("leave", of=number, done=True)

    def keep(self, signature: Tensor) -> tuple[int, int]:
        """Store the numbers of a signature; returns where: offset and count, in numbers."""
        start, count = self._numbers, signature.numel()
        left = memoryview(raw_bytes(signature))
        while left:
            left = left[os.write(self._values, left) :]
        self._numbers += count
        return start, count

    def mark_end(self) -> None:
        """Let the other ranks know that this one needs nothing of them any more."""
        with self.own():
            self.path("ended").touch()

    def ended(self) -> int:
        return len(list(self.out.glob("rank*.ended")))

    def answer_stack_requests(self) -> None:
        """On SIGUSR1 write every thread's stack, even where Python waits in C++."""
        if not hasattr(signal, "SIGUSR1"):
            return  # Windows
        stack = os.open(self.path("stack"), _APPEND, 0o644)
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)

    def _write(self, kind: str, detail: dict[str, Any]) -> None:
        line = {"k": kind, "i": self._events, "s": self.steps, "t": self.elapsed, **detail}
        os.write(self._lines, (json.dumps(line) + "\n").encode())
