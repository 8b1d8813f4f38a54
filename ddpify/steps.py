"""How far a long piece of work is: told by who does it, shown by who has a terminal."""

from __future__ import annotations

from typing import Protocol


class StepListener(Protocol):
    """Told before each step: what is done now, its number from 0, and how many there are (0: not
    known)."""

    def __call__(self, what: str, done: int = 0, of: int = 0) -> None: ...


def untold(what: str, done: int = 0, of: int = 0) -> None:
    """Nobody listens."""
