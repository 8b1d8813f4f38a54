"""Entries of a dict that one rank alone has put in: the other one's has none under that name."""

from __future__ import annotations

from dataclasses import replace

from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import IDENTITY, Origin, Symbol


class Unset(Symbol):
    """What an attribute is before a method sets it."""


def lacking(found: list[list[RankValue]], why: frozenset[Origin]) -> tuple[int, Origin] | None:
    """The rank whose dict has no such entry, where the other one's was given it."""
    whose = (origin for origin in why if origin.kind in IDENTITY)
    first = min(whose, key=lambda origin: origin.site, default=None)
    for rank in (0, 1):
        if all(one.lacks and one.lacks[0] == rank for one in found[rank]):
            told = found[rank][0].lacks if found[rank] else None
            return told or (None if first is None else (rank, first))
    return None


def with_lack(
    value: RankValue, sources: tuple[list[RankValue], list[RankValue]], why: frozenset[Origin]
) -> RankValue:
    """An attribute that the method of one rank's object alone has set."""
    found = [[one for one in side if not isinstance(one.atoms[0], Unset)] for side in sources]
    lack = lacking(found, why) if any(found) else None
    return value if lack is None else replace(value, lacks=lack)


def on_rank(value: RankValue, rank: int) -> RankValue:
    """A dict as a rank has it."""
    if not any(one.lacks for _, one in value.keys or ()):
        return value
    held = (pair for pair in value.keys or () if not pair[1].lacks or pair[1].lacks[0] != rank)
    return replace(value, keys=tuple(held))


def there(value: RankValue) -> RankValue:
    """An entry, where it is no matter any more which rank's dict has it."""
    return replace(value, lacks=None) if value.lacks else value
