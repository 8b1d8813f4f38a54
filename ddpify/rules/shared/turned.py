"""Two groups of which one rank uses the first one first, and another rank the second one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ddpify.ranks import words
from ddpify.ranks.collective import Collective, collective
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run

_MADE = f"{words.DIST}new_group"
_WORLD = "the group of all"
_NONE = ""  # a rank that does not come here


def turned(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """Where rank 0 and rank 1 wait in different groups, each of which the other comes to next."""
    calls = (call for call in run.calls if call.method not in words.SESSION_OPS)
    found = [s for call in calls if (s := collective(call)) and _names(s) != (_WORLD, _WORLD)]
    for alike, held in groupby(found, key=_is_alike):
        stretch = [] if alike else [*held]
        if not all(map(_is_certain, stretch)):
            continue
        ways = [[s for s in stretch if _names(s)[rank] != _NONE] for rank in (0, 1)]
        names = [[_names(s)[rank] for s in way] for rank, way in enumerate(ways)]
        if sorted(names[0]) == sorted(names[1]) and len(set(names[0])) == len(names[0]):
            for one, other, first, second in zip(*ways, *names, strict=True):
                if first != second:
                    yield one.call, other.call
                    break


def _names(shared: Collective) -> tuple[str, str]:
    """The group that each rank enters."""
    return _name(shared, 0), _name(shared, 1)


def _name(shared: Collective, rank: int) -> str:
    if not shared.call.ranks & (1 << rank):
        return _NONE
    value = shared.group
    if value is None:
        return _WORLD
    atom = value.atoms[rank]
    return atom.key if isinstance(atom, Symbol) else _WORLD


def _is_alike(shared: Collective) -> bool:
    """Whether both ranks come there, in one group."""
    one, other = _names(shared)
    return shared.call.ranks == ALL and one == other


def _is_certain(shared: Collective) -> bool:
    """Whether the ranks surely wait in it, in groups of which each is made once."""
    call = shared.call
    unknown = any(
        guard.is_open(rank)
        for guard in call.conditions
        for rank in (0, 1)
        if call.ranks & (1 << rank)
    )
    made = shared.group is None or shared.group.names() == {_MADE}
    return made and not unknown and shared.waits is True and not shared.divided
