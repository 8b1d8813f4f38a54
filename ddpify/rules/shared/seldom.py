"""Messages that one side sends, or receives, only where its own numbers say so, and the other side
in each round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.ranks.model import RankGuard, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.rules.shared.messages import Message

_ORDERS: Final = frozenset("Lt LtE Gt GtE".split())
_TESTS: Final = frozenset("isfinite isnan isinf lt le gt ge less greater any all".split())


def seldom(found: list[Message]) -> Iterator[tuple[Message, RankGuard, Message]]:
    """The message that is not there in each round, why, and the one that waits for it."""
    ways = {one.way for one in found}
    for way in ways:
        here = [one for one in found if one.way == way]
        sides = [[one for one in here if one.sends is sends] for sends in (True, False)]
        if (way[1], way[0]) in ways or len(sides[0]) != len(sides[1]):
            continue  # what comes back may say whether another one follows
        for some, others in (sides, sides[::-1]):
            guards = [_varying(one) for one in some]
            alike = {_others(one) for one in here}
            if len(alike) == 1 and None not in guards and not any(one.tests for one in others):
                yield from ((some[0], guard, others[0]) for guard in guards[:1] if guard)


def _others(one: Message) -> frozenset[str]:
    """What else decides how often it is there."""
    keys = {getattr(test.test.atoms[one.rank], "key", "") for test in one.tests}
    return one.names - {f"{key} {holds}" for key in keys for holds in (True, False)}


def _varying(one: Message) -> RankGuard | None:
    """The only condition, if it compares a number that is computed in each round."""
    guard = one.tests[0] if len(one.tests) == 1 else None
    if guard is None:
        return None
    inside = [loop for loop in one.call.loops if guard in one.call.conditions_in(loop)]
    around = inside or [loop for loop in one.call.loops if guard.site.within(loop.site)]
    if not around:
        return None
    if not _compares(guard.test, one.rank):
        return None
    made = (thing.call for thing in guard.test.sources())
    return guard if any(call is not None and around[-1] in call.loops for call in made) else None


def _compares(test: RankValue, rank: int) -> bool:
    """Whether it says how large a number is: not whether there is one, nor which one it is."""
    atom = test.atoms[rank]
    if isinstance(atom, Symbol) and atom.parts[:1] == ("Not",):
        atom = atom.parts[1]
    if isinstance(atom, Symbol) and atom.parts[:1] != ():
        return atom.parts[0] in _ORDERS
    return bool(test.things) and all(t.name.rpartition(".")[2] in _TESTS for t in test.things)
