"""What each rank decides for itself though it asks no sample: its clock, its draws, its files.

A draw is such once the ranks' streams are forked, before the training loop, unless the program
seeds the stream again inside it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from ddpify.facts.events import Where
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Guard, Loop
from ddpify.facts.values import Kind, Thing, Value
from ddpify.ranks.words import DRAWS, GENERATORS, SEEDERS
from ddpify.source import Site

_SPOKEN: Final = {
    Kind.CLOCK: "its own clock",
    Kind.RANDOM: "its own random draw",
    Kind.FILES: "when and where it looks at the file system",
}
_LEARNT: Final = (Kind.BATCH, Kind.FORWARD, Kind.MODEL, Kind.WRAPPED)


class Alone:
    """The conditions of one program that its ranks would answer each for itself."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def by(self, test: Value) -> Thing | None:
        """The first clock, draw or file that a condition asks; None where ranks agree.

        What a model computes of them is not such a decision, but a number to be reduced.
        """
        if test.dep(*_LEARNT):
            return None
        found = test.dep(Kind.CLOCK, Kind.RANDOM, Kind.FILES)
        return next((thing for thing in found if self._differs(thing)), None)

    def inside(self, where: Where) -> tuple[tuple[Guard, ...], tuple[Guard, ...]]:
        """The conditions under which an event comes in its training loop; those that end loops."""
        around = [loop for loop in where.loops() if self._trains(loop)]
        held = where.guards[around[-1].held :] if around else ()
        return held, tuple(guard for loop in around for guard in loop.exits)

    def _differs(self, thing: Thing) -> bool:
        if thing.kind is Kind.CLOCK or thing.name in GENERATORS:
            return True
        stream = next((stream for start, stream in DRAWS if thing.name.startswith(start)), None)
        return thing.born in self._calls and stream not in self._seeded_again

    def _trains(self, loop: Loop) -> bool:
        return loop.site in self._loops

    @cached_property
    def _loops(self) -> frozenset[Site]:
        """The loops around a backward, those of its callers included."""
        backwards = (loop.backward.where for loop in self._facts.training)
        return frozenset(loop.site for where in backwards for loop in where.loops())

    @cached_property
    def _calls(self) -> frozenset[Site]:
        """The calls that are made while the program trains."""
        calls = (call for call in self._facts.calls if any(map(self._trains, call.where.loops())))
        return frozenset(call.site for call in calls)

    @cached_property
    def _seeded_again(self) -> frozenset[str]:
        """The streams that the program itself seeds in there."""
        calls = (call for call in self._facts.calls if call.site in self._calls)
        return frozenset(stream for call in calls for stream in SEEDERS.get(call.name, ()))


def spoken(thing: Thing) -> str:
    """What a rank would decide by."""
    return _SPOKEN[thing.kind]
