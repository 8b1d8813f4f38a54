"""Who is in a group that new_group() made, as far as that is written."""

from __future__ import annotations

from ddpify.ranks import sizes, words
from ddpify.ranks.model import ALL, RankCall, RankValue

# With each number of processes; just one where that does not matter.
Members = tuple[range | frozenset[object], ...]


def has_both(group: RankValue) -> bool | None:
    """Whether rank 0 and rank 1 are in a group, one that both have made; None if that is not
    known."""
    made = group.made_by(f"{words.DIST}new_group")
    if made is None or made.call is None or made.call.star:
        return None
    one = len(group.things) == 1 and group.atoms[0] == group.atoms[1] and made.call.ranks == ALL
    if of_all(made.call):
        return True if one else None
    held = [members(made.call, rank) or () for rank in (0, 1)]
    if not all(held):
        return None
    both = {0 in named and 1 in named for worlds in held for named in worlds}
    return (True if one else None) if both == {True} else None if True in both else False


def of_all(made: RankCall) -> bool:
    """Whether a group is made without saying of whom: of all ranks."""
    ranks = made.arg(0, "ranks")
    return not made.star and (ranks is None or ranks.atoms == (None, None))


def members(made: RankCall, rank: int) -> Members | None:
    """Whom a rank names for the group that it makes: ``[0, 1]``, ``list(range(world))``."""
    ranks = made.arg(0, "ranks")
    return _numbers(ranks, rank) if ranks is not None and not made.star else None


def _numbers(ranks: RankValue, rank: int) -> Members | None:
    if ranks.items is not None:
        known = all(item.known for item in ranks.items)
        return (
            sizes.in_worlds(_named, *(item.atoms[rank] for item in ranks.items)) if known else None
        )
    made = ranks.made_by("builtins.list", "builtins.range")
    if made is None or made.call is None or made.call.star:
        return None
    if made.name == "builtins.list":
        return _numbers(made.call.args[0], rank) if made.call.args else None
    bounds = [arg.atoms[rank] for arg in made.call.args]
    known = bool(bounds) and all(isinstance(one, int) for one in bounds)
    if not known or any(0 in sizes.in_worlds(int, step) for step in bounds[2:]):
        return None
    return sizes.in_worlds(range, *bounds)


def _named(*numbers: object) -> frozenset[object]:
    return frozenset(numbers)
