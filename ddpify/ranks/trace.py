"""The collectives of a run as a tree, and where the trees of the two ranks differ.

Method: Aiken and Gay, *Barrier Inference*, 1998. Conditions that are known per rank are resolved,
those that are the same on all ranks stay as branches, and the two sequences are compared; a
condition on what each rank has for itself must lead to the same collectives either way.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ddpify.ranks.events import Exit
from ddpify.ranks.model import ALL, RankCall, RankGuard, RankValue
from ddpify.ranks.modules import Module
from ddpify.ranks.origins import Symbol
from ddpify.source import Site

WRAPPING = "DistributedDataParallel"  # the event of its constructor
ABORT = "abort"  # the process ends with an error: torchrun ends the job
UNREAD = "unread"  # what follows is not known
RAISE = "raise"  # a handler further out goes on after this error
BLOCK = "block"
LEAVING = ("return", "break", "continue")
CUT = frozenset({ABORT, UNREAD})
ENDS = frozenset({"return", "break", "continue", "stop", RAISE, ABORT, UNREAD})


@dataclass(eq=False)
class Event:
    """A collective is entered. ``op``: its name; ``call``: the call that enters it."""

    op: str
    call: RankCall | None
    node: ast.AST
    module: Module
    ranks: int
    guards: tuple[RankGuard, ...]
    stack: tuple[RankCall, ...] = ()

    @property
    def site(self) -> Site:
        """The place where the call is entered."""
        return self.module.site(self.node)

    def below(self, guard: RankGuard | None) -> Site:
        """Where the code under ``guard`` leads to it: the event itself, or a call; not that of a
        decorator, which hands on whatever it is given."""
        if guard is not None:
            for call in self.stack:
                under = any(one.node is guard.node for one in call.guards)
                if under and not call.hands_on:
                    return call.site
        return self.site


@dataclass(eq=False)
class Branch:
    """An ``if`` whose condition is the same on all ranks that do not know it."""

    tests: tuple[Any, Any]
    arms: tuple[list[Item], list[Item]]
    ranks: int

    @property
    def certain(self) -> int:
        """The ranks that know it where the others do not: ``not distributed or rank == 0``."""
        unknown = [isinstance(test, Symbol) for test in self.tests]
        return 0 if self.ranks != ALL or unknown[0] == unknown[1] else 1 + unknown[0]


@dataclass(eq=False)
class Split:
    """An ``if`` or a loop that each rank decides for itself.

    ``agreed``: a condition, and how it is where the ranks agree here: ``if distributed: …``.
    """

    guard: RankGuard
    arms: tuple[list[Item], list[Item]]
    ranks: int
    agreed: tuple[str, bool] | None = None


@dataclass(eq=False)
class Repeat:
    """A loop that all ranks run equally often; a ``break`` skips ``orelse``. ``asked``: what a
    ``while`` asks before it goes on."""

    key: str
    node: ast.AST
    body: list[Item]
    ranks: int
    orelse: list[Item] = field(default_factory=list)
    asked: RankValue | None = None

    @property
    def endless(self) -> bool:
        """``while True``: no rank counts its rounds."""
        test = self.node.test if isinstance(self.node, ast.While) else None
        return isinstance(test, ast.Constant) and bool(test.value)


@dataclass(eq=False)
class Inline:
    """What a function of the project does, or one round of a loop over a short list, or all its
    rounds, or the body of a ``try``; ``ends``: the exit that leads to its end (``return``,
    ``continue``, ``break``, RAISE), or that it is the BLOCK of a ``with``, at which none ends."""

    body: list[Item]
    ranks: int
    ends: str = "return"


@dataclass(eq=False)
class End:
    """The rest is skipped."""

    exit: Exit
    ranks: int


@dataclass(eq=False)
class Unread:
    """The program is too large: the rest is not known."""

    ranks: int


Item = Event | Branch | Split | Repeat | Inline | End | Unread


@dataclass(frozen=True, eq=False)
class Mismatch:
    """Two ranks enter different collectives.

    ``kind``: "guard" (``event`` is under a condition on the rank), "exit" (``exit`` makes some
    ranks skip it), "local" (``guard`` is decided by each rank for itself).
    ``paths``: the collectives from here on, of the ranks that do and of those that do not.
    """

    kind: str
    event: Event
    guard: RankGuard | None
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


def first(doing: list[Item], items: list[Item], kinds: Collection[str]) -> list[Item]:
    """``items``, in which each exit of these kinds that leaves them comes behind ``doing``."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, End) and item.exit.kind in kinds:
            out += doing
        elif isinstance(item, (Branch, Split)):
            one, other = (first(doing, arm, kinds) for arm in item.arms)
            item = replace(item, arms=(one, other))
        elif isinstance(item, (Repeat, Inline)):
            item = replace(item, body=first(doing, item.body, _beyond(item, kinds)))
        out.append(item)
    return out


def _beyond(item: Repeat | Inline, kinds: Collection[str]) -> Collection[str]:
    """Which of these exits lead out of an item that they stand in."""
    if isinstance(item, Repeat) or item.ends in ("break", "continue"):
        return {"return"} & set(kinds)
    return () if item.ends == "return" else set(kinds) - {item.ends}


def bodies(item: Item) -> tuple[list[Item], ...]:
    if isinstance(item, (Branch, Split)):
        return item.arms
    if isinstance(item, Repeat) and item.orelse:
        return (item.body, item.orelse)
    if isinstance(item, (Repeat, Inline)):
        return (item.body,)
    return ()


def flat(items: list[Item]) -> Iterator[Item]:
    for item in items:
        yield item
        for body in bodies(item):
            yield from flat(body)


def parts(item: Item) -> bool:
    """Whether anything in it is for some ranks only."""
    return item.ranks != ALL or any(parts(one) for body in bodies(item) for one in body)


def may_part(item: Item) -> bool:
    """Whether in it some ranks surely go one way, and the others need not."""
    own = isinstance(item, Branch) and item.certain != 0
    return own or any(may_part(one) for body in bodies(item) for one in body)


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
    """The exits that lead out of these items, nested ones included; of called functions such as end
    the process in peace: torchrun lets the others go on."""
    for item in items:
        if isinstance(item, End):
            yield item
            continue
        called = isinstance(item, Inline) and item.ends == "return"
        within = ("break", "continue") if isinstance(item, Repeat) else ()
        inner = (one for body in bodies(item) for one in ends(body))
        for one in inner:
            if one.exit.kind == "stop" or (not called and one.exit.kind not in within):
                yield one
