"""The record of a reading: its events in order, and those that each question is about.

A loop that ends asks what happened in it. In a large program there are many loops and very many
events: a loop that looked through all of them would make the reading quadratic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ddpify.facts.events import Access, Bind, Call, Forward
from ddpify.facts.scopes import Frame, Loop
from ddpify.source import Site

Event = Call | Bind | Access | Forward


class Events:
    """What happened so far, in order."""

    def __init__(self) -> None:
        self._all: list[Event] = []
        self._during: dict[Site, list[Call | Bind | Access]] = defaultdict(list)
        self._calls: dict[str, list[Call]] = defaultdict(list)
        self._binds: dict[tuple[Site, ...], list[Bind]] = defaultdict(list)
        self._binds_at: dict[str, list[Bind]] = defaultdict(list)
        self._accesses: dict[str, list[Access]] = defaultdict(list)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def append(self, event: Event) -> None:
        """Keep what happens now."""
        self._all.append(event)
        if isinstance(event, Forward):
            return
        if isinstance(event, Call):
            self._calls[event.name].append(event)
        elif isinstance(event, Bind):
            self._binds[event.where.frame.stack].append(event)
            self._binds_at[event.site.path].append(event)
        else:
            self._accesses[event.attribute].append(event)
        if event.where.loop is not None:
            for site in {loop.site for loop in event.where.loops()}:
                self._during[site].append(event)

    def during(self, loop: Loop) -> Sequence[Call | Bind | Access]:
        """What happened while a loop ran that stands where this one does."""
        return self._during.get(loop.site, ())

    def named(self, names: Iterable[str]) -> Iterator[Call]:
        """The calls of these names, name by name."""
        return (call for name in names for call in self._calls.get(name, ()))

    def binds_of(self, f: Frame) -> Iterator[Bind]:
        """What the function of a frame bound, in this call of it."""
        return (e for e in self._binds.get(f.stack, ()) if e.where.function is f.function)

    def binds_in(self, site: Site) -> Iterator[Bind]:
        """What is bound at places in a stretch of the program."""
        return (e for e in self._binds_at.get(site.path, ()) if e.site.within(site))

    def accesses(self, attribute: str) -> Sequence[Access]:
        """The reads and changes of attributes of this name."""
        return self._accesses.get(attribute, ())
