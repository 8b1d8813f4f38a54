"""What of a project was read: its programs, and what was left out. No parser is loaded for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Program(NamedTuple):
    """A program, or a part of one, that was read as several ranks run it.

    ``start``: the script, or a function (``file:line``) that none enters; ``session``: where a
    process group or a framework's processes begin, ``opener`` what begins them ("" if that was not
    seen); ``stopped``: where a program that is too large was left (``complete`` is False), before
    it came to the functions ``missed``.
    """

    start: str
    session: str = ""
    opener: str = ""
    complete: bool = True
    stopped: str = ""
    missed: tuple[str, ...] = ()

    def named(self, path: Callable[[str], str]) -> Program:
        """The same, its files named otherwise."""
        start, session, stopped = (
            path(place) if place else "" for place in (self.start, self.session, self.stopped)
        )
        return self._replace(start=start, session=session, stopped=stopped)

    @property
    def begun(self) -> str:
        """How its processes are begun."""
        if not self.opener:
            return "nothing was seen that starts its processes"
        return f"{self.opener} in {self.session}"

    @property
    def left(self) -> str:
        """The program, and what of it was not reached."""
        stop = f"read as far as {self.stopped}" if self.stopped else ""
        missed = f"not {', '.join(f'{name}()' for name in self.missed)}" if self.missed else ""
        told = ", ".join(part for part in (stop, missed) if part)
        return f"{self.start} ({told})" if told else self.start


class Skipped(NamedTuple):
    """A file or folder that was found and not read; ``kind`` is its word in a count."""

    path: str
    kind: str
    why: str
