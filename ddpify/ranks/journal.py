"""The journal of the two-rank reading: what was written and recorded, and how it is taken back."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ddpify.ranks.aliases import Aliases, Changes, is_container
from ddpify.ranks.events import Here
from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.trace import Item

MISSING: Any = object()


class Journal:
    """The state of a reading that a branch may change and that is taken back after each arm."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.order = 0
        self.live = ALL
        self.here = Here()
        self.items: list[Item] = []
        self.journal: list[tuple[dict[str, RankValue], str, Any]] = []
        self.aliases = Aliases()
        self.reread: list[ast.AST] = []  # loops of which two rounds were read

    def tick(self) -> int:
        """The number of the next event."""
        self.order += 1
        return self.order

    def write(self, space: dict[str, RankValue], key: str, value: RankValue) -> None:
        """Set a name, so that it can be taken back after a branch."""
        self.journal.append((space, key, space.get(key, MISSING)))
        self.hold(space, key, value)

    def hold(self, space: dict[str, RankValue], key: str, value: RankValue) -> None:
        """Set a name for good."""
        space[key] = value
        if is_container(value):
            self.aliases.note(value, space, key)

    def take_back(self, mark: int) -> Changes:
        """Undo what was written since ``mark``; what it was."""
        changes: Changes = {}
        while len(self.journal) > mark:
            space, key, old = self.journal.pop()
            if (id(space), key) not in changes and key in space:
                changes[(id(space), key)] = (space, space[key])
            if old is MISSING:
                space.pop(key, None)
            else:
                space[key] = old
        return changes

    def since(self, mark: int, but: dict[str, RankValue] | None) -> Changes:
        """What was written since ``mark`` as it is now, beside the names in ``but``."""
        return {
            (id(space), key): (space, space[key])
            for space, key, _ in self.journal[mark:]
            if space is not but and key in space
        }

    def before(self, mark: int) -> dict[tuple[int, str], RankValue | None]:
        """What was there at ``mark`` of what was written since."""
        found: dict[tuple[int, str], RankValue | None] = {}
        for space, key, old in self.journal[mark:]:
            found.setdefault((id(space), key), None if old is MISSING else old)
        return found

    def forget(self, mark: int, space: dict[str, RankValue]) -> None:
        """The names of a function that has ended: nobody sees them any more."""
        self.journal[mark:] = [entry for entry in self.journal[mark:] if entry[0] is not space]

    def tried(self, run: Callable[[], None]) -> Changes:
        """Run a block and take back what it changes."""
        mark = len(self.journal)
        run()
        return self.take_back(mark)

    def mark(self) -> tuple[int, ...]:
        """How much has happened so far."""
        return (len(self.journal), *map(len, self._records()), self.live)

    def back_to(self, mark: tuple[int, ...]) -> None:
        """Take back what happened since ``mark``."""
        self.take_back(mark[0])
        for record, length in zip(self._records(), mark[1:-1], strict=True):
            del record[length:]
        self.live = mark[-1]

    def _records(self) -> tuple[list[Any], ...]:
        run = self.run
        return (self.reread, self.items, run.calls, run.stores, run.exits, run.reads, run.loops)
