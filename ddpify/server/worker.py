"""The one thread that reads programs, while another one talks to the editor."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")
_STACK = 256 * 1024 * 1024  # address space: programs nest deeply, and threads have little room


class ReadingThread:
    """Does what it is given, one after the other; the process does not wait for it at its end."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        before = threading.stack_size(_STACK)
        threading.Thread(target=self._work, daemon=True).start()
        threading.stack_size(before)

    async def do(self, job: Callable[[], Result]) -> Result:
        """The result of a job; one that nobody waits for any more is not begun."""
        future: Future[Result] = Future()
        self._jobs.put((future, job))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except Exception as error:  # told where it is waited for
                future.set_exception(error)
