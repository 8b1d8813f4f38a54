"""Who holds a list or a dict: what changes it in place changes it for all of them.

Values are never changed. ``e = d; e["x"] = loader`` makes a new value, which takes the place of the
old one wherever that is held: by the names ``d`` and ``e``, and in what holds it as an element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ddpify.ranks.model import RankValue

Space = dict[str, RankValue]
Changes = dict[tuple[int, str], tuple[Space, RankValue]]  # what was written where
Write = Callable[[Space, str, RankValue], None]
MAX_HOLDERS = 48  # of one list: more are frames of calls that ended long ago
MAX_NESTING = 6


@dataclass
class Aliases:
    """The holders of each list and dict, by the identity of its value."""

    places: dict[int, list[tuple[RankValue, Space, str]]] = field(default_factory=dict)
    outer: dict[int, list[tuple[RankValue, RankValue]]] = field(default_factory=dict)
    noted: dict[int, RankValue] = field(default_factory=dict)

    def note(self, value: RankValue, space: Space, key: str) -> None:
        """``space[key]`` is this list or dict."""
        held = self.places.setdefault(id(value), [])
        if len(held) >= MAX_HOLDERS:
            held[:] = [one for one in held if one[1].get(one[2]) is value][-MAX_HOLDERS // 2 :]
        held.append((value, space, key))
        self._contained(value, MAX_NESTING)

    def _contained(self, value: RankValue, depth: int) -> None:
        """The lists and dicts in it."""
        if id(value) in self.noted or not depth:
            return
        self.noted[id(value)] = value
        for one in (*(value.items or ()), *(entry for _, entry in value.keys or ())):
            if is_container(one):
                held = self.outer.setdefault(id(one), [])
                if len(held) < MAX_HOLDERS:
                    held.append((one, value))
                self._contained(one, depth - 1)

    def change(
        self, write: Write, old: RankValue, new: RankValue, depth: int = MAX_NESTING
    ) -> bool:
        """``old`` was changed in place and is ``new`` now; whether anybody held it."""
        changed = False
        for thing in old.things:
            if thing.held is old:
                thing.held = new
        for value, space, key in tuple(self.places.get(id(old), ())):
            if value is old and space.get(key) is old:
                write(space, key, new)
                changed = True
        for value, holder in tuple(self.outer.get(id(old), ())) if depth else ():
            if value is old:
                changed |= self.change(write, holder, _exchanged(holder, old, new), depth - 1)
        return changed


def is_container(value: RankValue) -> bool:
    """Whether a value is a list, a tuple or a dict whose elements are known."""
    return value.items is not None or value.keys is not None


def _exchanged(holder: RankValue, old: RankValue, new: RankValue) -> RankValue:
    """A list or dict with another element in the place of one of its own."""
    items, keys = holder.items, holder.keys
    if items is not None:
        items = tuple(new if one is old else one for one in items)
    if keys is not None:
        keys = tuple((name, new if one is old else one) for name, one in keys)
    return replace(holder, items=items, keys=keys)
