"""The collectives of a run as a tree, and where the trees of the two ranks differ.

Method: BUGS.md section 3. Conditions that are known per rank are resolved, those that are the same
on all ranks stay as branches, and the two sequences are compared; a condition on what each rank has
for itself must lead to the same collectives either way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpify.ranks.model import ALL, Call, Exit, Guard, Symbol
from ddpify.source import Site

if TYPE_CHECKING:
    from ddpify.ranks.modules import Module

ABORT = "abort"  # the process ends with an error: torchrun ends the job
ENDS = frozenset({"return", "break", "continue", "stop", ABORT})


@dataclass(eq=False)
class Event:
    """A collective is entered. ``op``: its name; ``call``: the call that enters it."""

    op: str
    call: Call | None
    node: ast.AST
    module: Module
    ranks: int
    guards: tuple[Guard, ...]
    stack: tuple[Call, ...] = ()

    @property
    def site(self) -> Site:
        """Where it is entered."""
        return self.module.site(self.node)

    def below(self, guard: Guard | None) -> Site:
        """Where the code under ``guard`` leads to it: the event itself, or a call."""
        if guard is not None:
            for call in self.stack:
                if any(one.node is guard.node for one in call.guards):
                    return call.site
        return self.site


@dataclass(eq=False)
class Branch:
    """An ``if`` whose condition is the same on all ranks that do not know it."""

    tests: tuple[Any, Any]
    arms: tuple[list[Item], list[Item]]
    ranks: int


@dataclass(eq=False)
class Split:
    """An ``if`` or a loop that each rank decides for itself."""

    guard: Guard
    arms: tuple[list[Item], list[Item]]
    ranks: int


@dataclass(eq=False)
class Repeat:
    """A loop that all ranks run equally often."""

    key: str
    body: list[Item]
    ranks: int


@dataclass(eq=False)
class Inline:
    """What a function of the project does; a ``return`` ends here."""

    body: list[Item]
    ranks: int


@dataclass(eq=False)
class End:
    """The rest is skipped."""

    exit: Exit
    ranks: int


Item = Event | Branch | Split | Repeat | Inline | End
Token = Any  # an operation's name, (kind, …) for a nested one, or one of ENDS


@dataclass(frozen=True, eq=False)
class Mismatch:
    """Two ranks enter different collectives.

    ``kind``: "guard" (``event`` is under a condition on the rank), "exit" (``exit`` makes some
    ranks skip it), "local" (``guard`` is decided by each rank for itself).
    ``paths``: the collectives from here on, of the ranks that do and of those that do not.
    """

    kind: str
    event: Event
    guard: Guard | None
    exit: Exit | None
    ranks: int
    paths: tuple[tuple[Event, ...], tuple[Event, ...]]
    head: bool = False  # the condition is that of a loop

    @property
    def site(self) -> Site:
        """Where to report: the exit, or the call under the condition that leads to the event."""
        if self.head and self.guard is not None:
            return self.guard.site
        return self.exit.site if self.exit is not None else self.event.below(self.guard)


def bodies(item: Item) -> tuple[list[Item], ...]:
    if isinstance(item, (Branch, Split)):
        return item.arms
    if isinstance(item, (Repeat, Inline)):
        return (item.body,)
    return ()


def parts(item: Item) -> bool:
    """Whether anything in it is for some ranks only."""
    return item.ranks != ALL or any(parts(one) for body in bodies(item) for one in body)


def events(items: list[Item], rank: int | None = None) -> Iterator[Event]:
    """The events, nested ones included; with ``rank``, without the arms that it cannot take."""
    for item in items:
        if isinstance(item, Event):
            yield item
        elif rank is not None and isinstance(item, Branch):
            test = item.tests[rank]
            for arm, taken in zip(item.arms, (True, False), strict=True):
                if isinstance(test, Symbol) or bool(test) is taken:
                    yield from events(arm, rank)
        else:
            for body in bodies(item):
                yield from events(body, rank)


def ends(items: list[Item]) -> Iterator[End]:
    """The exits, nested ones included, those of called functions left out."""
    for item in items:
        if isinstance(item, End):
            yield item
        elif not isinstance(item, Inline):
            for body in bodies(item):
                yield from ends(body)


def alike(a: tuple[Token, ...], b: tuple[Token, ...]) -> bool:
    """Whether two ranks enter the same; after an abort nothing is compared."""
    for one, other in zip(a, b, strict=False):
        if ABORT in (one, other):
            return True
        if one != other:
            return False
    longer = a[len(b) :] or b[len(a) :]
    return not any(has_operation(token) for token in longer) or longer[0] == ABORT


def has_operation(token: Token) -> bool:
    """Whether a token holds a collective."""
    if isinstance(token, tuple):
        return any(has_operation(one) for part in token[2:] for one in part)
    return token not in ENDS


def view(items: list[Item], rank: int) -> tuple[Token, ...]:
    """What ``rank`` enters, in order; what follows an early exit is put where it belongs."""
    out: list[Token] = []
    for number, item in enumerate(items):
        if not item.ranks & (1 << rank):
            continue
        if isinstance(item, Event):
            out.append(item.op)
        elif isinstance(item, End):
            out.append(item.exit.kind)
            break
        elif isinstance(item, Inline):
            out += _stripped(view(item.body, rank), ("return",))
        elif isinstance(item, Repeat):
            body = one_round(item.body, rank)
            if any(has_operation(token) for token in body):
                out.append(("loop", item.key, body))
        else:
            done = _fork(item, rank, items[number + 1 :], out)
            if done:
                break
    return tuple(out)


def one_round(items: list[Item], rank: int) -> tuple[Token, ...]:
    """What ``rank`` enters in a loop's body; ``continue`` ends here."""
    return tuple(_stripped(view(items, rank), ("continue",)))


def _fork(item: Branch | Split, rank: int, rest: list[Item], out: list[Token]) -> bool:
    """Append a condition's tokens to ``out``; True when they include all that follows."""
    test = item.tests[rank] if isinstance(item, Branch) else Symbol("local")
    if not isinstance(test, Symbol):
        out += view(item.arms[0 if test else 1], rank)
        return bool(out) and out[-1] in ENDS
    one, other = view(item.arms[0], rank), view(item.arms[1], rank)
    if one == other:
        out += one
        return bool(one) and one[-1] in ENDS
    for arm, instead in ((one, other), (other, one)):
        if arm and arm[-1] == ABORT:
            out += instead
            return bool(instead) and instead[-1] in ENDS
    ended = [bool(arm) and arm[-1] in ENDS for arm in (one, other)]
    if isinstance(item, Split):
        out += other if ended[0] or not one else one
        return False
    if not any(ended):
        out += _branch(test.key, one, other)
        return False
    following = view(rest, rank)
    one, other = (a if end else a + following for a, end in zip((one, other), ended, strict=True))
    out += _branch(test.key, one, other)
    return True


def _branch(key: str, one: tuple[Token, ...], other: tuple[Token, ...]) -> tuple[Token, ...]:
    """A condition that is the same on all ranks; in its arms it is known, so that ``if not d or
    rank == 0: … if d: …`` compares equal to what the other ranks do in the ``else``."""
    if key.startswith("not "):
        key, one, other = key[4:], other, one
    one, other = _assuming(key, True, one), _assuming(key, False, other)
    return one if one == other else (("branch", key, one, other),)


def _assuming(key: str, holds: bool, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """The tokens that are left where a condition is known."""
    out: list[Token] = []
    for token in tokens:
        if not isinstance(token, tuple) or token[0] != "branch":
            out.append(token)
        elif token[1] == key:
            out += _assuming(key, holds, token[2 if holds else 3])
        else:
            one, other = (_assuming(key, holds, arm) for arm in token[2:])
            out += one if one == other else (("branch", token[1], one, other),)
    return tuple(out)


def _stripped(tokens: tuple[Token, ...], kinds: tuple[str, ...]) -> list[Token]:
    """Without exits of these kinds, which end here; branches left with equal arms are joined."""
    out: list[Token] = []
    for token in tokens:
        if isinstance(token, tuple) and token[0] == "branch":
            one, other = (tuple(_stripped(arm, kinds)) for arm in token[2:])
            if one == other:
                out += one
            else:
                out.append(("branch", token[1], one, other))
        elif token not in kinds:
            out.append(token)
    return out
