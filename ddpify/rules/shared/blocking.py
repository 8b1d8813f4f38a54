"""Two ranks exchange messages, each of which waits until the other side is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.messages import LEFT, Message, in_order, messages

Pair = tuple[Message, Message]


@dataclass
class _Exchange:
    """What each rank does, how far it is, and which messages have met their other side."""

    doing: tuple[list[Message], list[Message]]
    at: list[int] = field(default_factory=lambda: [0, 0])
    begun: list[Message] = field(default_factory=list)
    met: set[int] = field(default_factory=set)

    def stuck(self) -> Pair | None:
        """Where both ranks wait for ever; None if one of them comes to its end."""
        while any([self._goes_on(rank) for rank in (0, 1)]):
            pass
        if any(self.at[rank] >= len(self.doing[rank]) for rank in (0, 1)):
            return None
        one, other = (self.doing[rank][self.at[rank]] for rank in (0, 1))
        return one, other

    def _goes_on(self, rank: int) -> bool:
        if self.at[rank] >= len(self.doing[rank]):
            return False
        one = self.doing[rank][self.at[rank]]
        if not any(one is begun for begun in self.begun):
            self.begun.append(one)
            self._meets(one)
        if one.waits and id(one) not in self.met:
            return False
        self.at[rank] += 1
        return True

    def _meets(self, one: Message) -> None:
        for other in self.begun:
            if id(other) not in self.met and fits(one, other):
                self.met |= {id(one), id(other)}
                return


def fits(one: Message, other: Message) -> bool:
    """Whether two are both sides of one message."""
    alike = one.way == other.way and one.sends is not other.sends
    return alike and (one.tag == other.tag or None in (one.tag, other.tag))


def stuck(found: list[Message]) -> Iterator[Pair]:
    """Where both ranks wait for each other: what stands under the same conditions, in order."""
    for names in dict.fromkeys(one.names for one in found):
        here = [one for one in found if one.names == names]
        if any(True for _ in unmet(here)):
            continue  # the other sides stand under other conditions
        held = _Exchange((in_order(here, 0), in_order(here, 1))).stuck()
        if held is not None:
            yield held


def unmet(found: list[Message]) -> Iterator[tuple[Message, Message | None]]:
    """The messages that have no other side, and one that goes the same way with another tag; of
    each way the last is the first to be told."""
    for way in dict.fromkeys(one.way for one in found):
        here = [one for one in found if one.way == way]
        sent, received = ([one for one in here if one.sends is sends] for sends in (True, False))
        if sent and received and _names(sent) != _names(received):
            one = _beyond(sent, received) or _beyond(received, sent)
            if one is not None:
                yield one, None
            continue
        left = _left(sent, received)
        if left is not None:
            yield left


def _beyond(sure: list[Message], at_most: list[Message]) -> Message | None:
    """The last of some messages, if the other side may only end early, and has too few even then:
    each loop around it has as many rounds as on this side."""
    more = {name for one in at_most for name in one.names - sure[0].names}
    alike = all(one.names == sure[0].names for one in sure) and sure[0].waits
    apart = any(not sure[0].names <= one.names for one in at_most)
    if not alike or apart or not all(name.startswith(LEFT) for name in more):
        return None
    tags = {one.tag for one in (*sure, *at_most)}
    last = max(sure, key=lambda one: one.place)
    return last if len(tags) == 1 and len(sure) > len(at_most) else None


def _names(found: list[Message]) -> set[str]:
    return {name for one in found for name in one.names}


def _left(sent: list[Message], received: list[Message]) -> tuple[Message, Message | None] | None:
    open_ = list(sent)
    for one in sorted(received, key=lambda one: one.place):
        match = next((other for other in open_ if fits(one, other)), None)
        if match is None:
            return one, next(iter(open_), None)
        open_.remove(match)
    return (max(open_, key=lambda one: one.place), None) if open_ else None


def pairs(run: Run) -> list[Pair]:
    """The sides of each message of a run, who sends it first: once for all rounds of a loop."""
    return run.once(_pairs)


def _pairs(run: Run) -> list[Pair]:
    found = messages(run)
    if any(True for _ in unmet(found)):
        return []
    made: dict[tuple[RankCall, RankCall], Pair] = {}
    for names in dict.fromkeys(one.names for one in found):
        here = [one for one in found if one.names == names]
        open_ = sorted((one for one in here if not one.sends), key=lambda one: one.place)
        for sent in sorted((one for one in here if one.sends), key=lambda one: one.place):
            match = next((other for other in open_ if fits(sent, other)), None)
            if match is not None:
                open_.remove(match)
                made.setdefault((sent.call, match.call), (sent, match))
    return [*made.values()]
