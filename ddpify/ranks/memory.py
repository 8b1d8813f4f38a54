"""What one reading of a project keeps for the next: answers that rest on the texts of files alone.

A run of the command line reads once. An editor's server reads after each pause in typing, and all
files but one are what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")


class TextMemory:
    """Answers by question and texts; what a reading did not ask again is forgotten by the next."""

    def __init__(self) -> None:
        self._before: dict[tuple[Any, ...], object] = {}
        self._now: dict[tuple[Any, ...], object] = {}

    def begin(self) -> None:
        """Another reading begins."""
        self._before, self._now = self._now, {}

    def once(self, ask: Callable[..., Answer], *given: object) -> Answer:
        """What ``ask`` says of this; it may look at nothing else."""
        key = (ask, *given)
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else ask(*given)
        return cast(Answer, self._now[key])
