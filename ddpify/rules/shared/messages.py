"""What two ranks send to each other, message by message: torch.distributed and mpi4py.

Only a program of which every message is understood is judged: who sends it, to whom, and how often.
A number of rounds that is not known is a name, and so is a condition; both sides have to have the
same names, and whatever they stand for is the same on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from ddpify.ranks import sizes, words
from ddpify.ranks.collective import collective
from ddpify.ranks.counters import CountedNumber, in_round
from ddpify.ranks.events import Exit
from ddpify.ranks.model import ALL, RankCall, RankGuard, RankLoop, RankValue
from ddpify.ranks.operations import ARITHMETIC, COMPARISONS
from ddpify.ranks.origins import Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.trace import ABORT
from ddpify.rules.shared.lengths import length
from ddpify.rules.shared.overlooked import filled_by, loops
from ddpify.rules.shared.sides import among_all, kind, of_objects, of_torch, peer_name, sends

MAX_MESSAGES = 400
_COUNTED = ("builtins.range", "builtins.enumerate")
LEFT = "left at "
_OBJECTS = -1  # the tag that stands for those of object lists
_ROUNDS = 6  # what a number of rounds that is not known is taken for
Known = dict[str, int | None]


@dataclass(frozen=True)
class Message:
    """One side of one message. ``peer`` is the other rank; ``tag`` None where any will do."""

    call: RankCall
    rank: int
    sends: bool
    waits: bool
    peer: int
    tag: int | None
    place: tuple[int, ...]
    names: frozenset[str]
    tests: tuple[RankGuard, ...] = ()  # those of its conditions that are not known
    meets: bool = False  # a collective, at which both wait: rank 0 "sends"

    @property
    def way(self) -> tuple[int, int]:
        """From which rank to which."""
        if self.meets:
            return (-1, -1)
        return (self.rank, self.peer) if self.sends else (self.peer, self.rank)


class NotKnown(Exception):
    """Something of a message is not understood."""


def messages(run: Run, meeting: bool = False) -> list[Message]:
    """All messages between rank 0 and rank 1; nothing if one is not understood. ``meeting``: with
    the collectives of all ranks."""
    calls = among_all(run)
    if not run.script and len(set(map(sends, calls))) == 1:
        return []  # a part of a program that only sends: others may receive in another part
    if calls and meeting:
        calls = sorted((*calls, *filter(_meets, run.calls)), key=lambda call: call.order)
    try:
        return [*_all(run, calls)]
    except NotKnown:
        return []


def _meets(call: RankCall) -> bool:
    """Whether all ranks wait for each other in it."""
    shared = collective(call)
    if shared is None or shared.group is not None or call.method in words.SESSION_OPS:
        return False
    return shared.waits is True


def _all(run: Run, calls: list[RankCall]) -> Iterator[Message]:
    starts: dict[RankLoop, int] = {}
    around = {call: loops(run, call) for call in calls}
    for call in calls:
        for loop in around[call]:
            starts.setdefault(loop, call.order)
    made = 0
    for call in calls:
        for rank in (0, 1):
            if call.ranks & (1 << rank):
                for one in Turns(run, call, rank, starts, around[call]).messages():
                    made += 1
                    if made > MAX_MESSAGES:
                        raise NotKnown
                    yield one


@dataclass(frozen=True)
class Turns:
    """One call on one rank, in each of its rounds."""

    run: Run
    call: RankCall
    rank: int
    starts: dict[RankLoop, int]
    around: tuple[RankLoop, ...]

    def rounds(self, names: set[str]) -> Iterator[tuple[tuple[int, ...], Known]]:
        """The rounds of its loops, and the numbers of their variables in each."""
        held = [self._numbers(loop, names) for loop in self.around]
        for turn in product(*(range(len(numbers)) for numbers in held)):
            known: Known = {}
            for loop, numbers, n in zip(self.around, held, turn, strict=True):
                known |= {f"{what}@{loop.site}": numbers[n] for what in ("element", "index")}
                known |= in_round(loop.site, n, len(numbers))
            yield turn, known

    def messages(self) -> Iterator[Message]:
        """The messages, in their order."""
        left = frozenset(self._exits())
        names: set[str] = set()
        for turn, known in self.rounds(names):
            conditions = self.conditions(known)
            if conditions is not None:
                tests = tuple(conditions.values())
                yield from self._message(known, turn, left.union(names, conditions), tests)

    def _message(
        self,
        known: Known,
        turn: tuple[int, ...],
        names: frozenset[str],
        tests: tuple[RankGuard, ...],
    ) -> Iterator[Message]:
        place, how = self._place(turn), kind(self.call)
        if how is None:
            both = (self.rank == 0, True, 1 - self.rank, None)
            yield Message(self.call, self.rank, *both, place, names, tests, meets=True)
            return
        peer = self._peer(known)
        if peer in (0, 1):
            tag = self._tag(known)
            yield Message(self.call, self.rank, *how, peer, tag, place, names, tests)

    def _place(self, turn: tuple[int, ...]) -> tuple[int, ...]:
        """Where it comes among the others: by where its loops begin, and their rounds."""
        turns = zip(self.around, turn, strict=True)
        rounds = [number for loop, n in turns for number in (self.starts[loop], n)]
        return (*rounds, self.call.order)

    @property
    def _blind(self) -> bool:
        """Whether tags are not looked at: by NCCL."""
        backend = self.run.session.arg(0, "backend") if self.run.session is not None else None
        return backend is not None and backend.constant == "nccl"

    def conditions(self, known: Known) -> dict[str, RankGuard] | None:
        """What decides whether this is reached, where it is not known; None if it is not."""
        names = self._unknown(self.call.conditions, known)
        if names is None:
            return None
        for left in self._skips():
            own = [guard for guard in left.guards if guard not in self.call.guards]
            unknown = self._unknown(own, known)
            if unknown is None:
                continue
            if not unknown:
                return None
            if len(unknown) > 1:
                raise NotKnown
            for guard in unknown.values():
                names[f"{guard.test.atoms[self.rank].key} {not guard.holds}"] = guard
        return names

    def _unknown(self, guards: Iterable[RankGuard], known: Known) -> dict[str, RankGuard] | None:
        """The conditions that are not known; None if one does not hold."""
        names: dict[str, RankGuard] = {}
        for guard in guards:
            atom = guard.test.atoms[self.rank]
            if guard.ranks != ALL and any(guard.node is one.node.func for one in self.call.way):
                continue  # whose method it is: an object of another class on each rank
            if isinstance(atom, Symbol):
                holds = self._holds(atom, known)
                if holds is None:
                    names[f"{atom.key} {guard.holds}"] = guard
                elif holds is not guard.holds:
                    return None
        return names

    def _holds(self, atom: Symbol, known: Known) -> bool | None:
        """Whether a condition on a round's number holds: ``i < rounds - 1``, ``i % 5``."""
        if atom.parts[:1] != () and atom.parts[0] in ARITHMETIC:
            number = self.number(atom, known, None)
            return bool(number) if isinstance(number, int) else None
        if len(atom.parts) != 3 or atom.parts[0] not in COMPARISONS:
            return None
        one, other = (self.number(part, known, None) for part in atom.parts[1:])
        if not isinstance(one, int) or not isinstance(other, int):
            return None
        return bool(COMPARISONS[atom.parts[0]](one, other))

    def _exits(self) -> Iterator[str]:
        """What may end a loop around it."""
        way = {one.function for one in self.call.way}
        for left in self.run.exits:
            mine = left.ranks & (1 << self.rank) and left.function in way
            ends = mine and any(map(left.ends, self.call.loops))
            if ends and left.kind not in ("continue", ABORT):
                yield f"{LEFT}{left.site}"

    def _skips(self) -> Iterator[Exit]:
        """The ``continue`` statements above it, in a loop around it."""
        for left in self.run.exits:
            mine = left.kind == "continue" and left.ranks & (1 << self.rank)
            before = left.order < self.call.order
            if mine and before and not {*left.loops[-1:]}.isdisjoint(self.call.loops):
                yield left

    def _numbers(self, loop: RankLoop, names: set[str]) -> list[int | None]:
        """What a loop's variable is in each of its rounds."""
        fill = filled_by(self.run, loop)
        if fill is not None:
            return [None] * len(self._numbers(fill.loops[-1], names))
        over = loop.over
        made = over.made_by(*_COUNTED) if over is not None else None
        if made is not None and made.call is not None and made.name == "builtins.enumerate":
            listed = length(made.call.args[0], self.rank) if made.call.args else None
            start = made.call.arg(1, "start")
            first = start.atoms[self.rank] if start is not None else 0
            made = None
            if isinstance(listed, int) and isinstance(first, int):
                return [*range(sizes.with_two(first), sizes.with_two(first + listed))]
        if made is None or made.call is None:
            names.add(f"rounds of {loop.site}")
            return [None] * _ROUNDS
        bounds = []
        for arg in made.call.args:
            value = self.number(arg.atoms[self.rank], {}, names)
            if not isinstance(value, int):
                raise NotKnown
            bounds.append(value)
        numbers = range(*bounds)
        if len(numbers) > MAX_MESSAGES:
            raise NotKnown
        return [*numbers]

    def _peer(self, known: Known) -> int:
        return self._named(self.call.arg(1, peer_name(self.call)), known)

    def _tag(self, known: Known) -> int | None:
        if of_objects(self.call):
            return _OBJECTS
        value = self.call.arg(3 if of_torch(self.call) else 2, "tag")
        if self._blind:
            return None
        if value is None:
            return 0 if sends(self.call) or of_torch(self.call) else None
        return self._named(value, known)

    def _named(self, value: RankValue | None, known: Known) -> int:
        """The number of a peer or of a tag; any one will do is none."""
        number = self.number(value.atoms[self.rank], known, None) if value is not None else None
        if not isinstance(number, int) or number < 0:
            raise NotKnown
        return number

    def number(self, atom: Any, known: Known, names: set[str] | None = None) -> Any:
        """An atom, computed; what is not known stands for some number, if names may be given."""
        if not isinstance(atom, Symbol):
            return sizes.with_two(atom)
        if atom.key in known:
            return known[atom.key]
        if isinstance(atom, CountedNumber) and names is None:
            return atom.number(known)
        if len(atom.parts) == 3 and atom.parts[0] in ARITHMETIC:
            name, *operands = atom.parts
            one, other = (self.number(operand, known, names) for operand in operands)
            if one is None or other is None:
                return None
            try:
                return ARITHMETIC[name](one, other)
            except (ArithmeticError, TypeError):
                return None
        if names is None:
            return None
        names.add(atom.key)
        return _ROUNDS


def in_order(found: list[Message], rank: int) -> list[Message]:
    """What a rank does, one after the other."""
    return sorted((one for one in found if one.rank == rank), key=lambda one: one.place)
