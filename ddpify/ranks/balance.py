"""Where the collectives of the two ranks differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain, combinations

from ddpify.ranks import apart
from ddpify.ranks.events import Exit
from ddpify.ranks.model import ALL
from ddpify.ranks.paths import TooManyPaths, alike, begin, one_round, trial, view
from ddpify.ranks.trace import (
    ABORT,
    BLOCK,
    CUT,
    ENDS,
    LEAVING,
    RAISE,
    Branch,
    End,
    Event,
    Inline,
    Item,
    Mismatch,
    Repeat,
    Split,
    Unread,
    bodies,
    ends,
    events,
    flat,
    may_part,
    parts,
)
from ddpify.ranks.words import COLLECTIVE_OPS
from ddpify.source import Site

_FEW = 6  # parts that differ, each of which is tried as the only one


@dataclass
class Balance:
    """Compares what the two ranks enter, and keeps the differences."""

    found: list[Mismatch] = field(default_factory=list)
    cut: bool = False

    def check(self, items: list[Item]) -> list[Mismatch]:
        """All differences of a whole run, up to where there are too many paths (``cut``)."""
        begin()
        for compare in (self._segments, lambda whole: self._splits(whole, [], None)):
            try:
                compare(items)
            except TooManyPaths:
                self.cut = True
        return self.found

    # -- conditions on the rank ----------------------------------------------------------------

    def _segments(self, items: list[Item]) -> None:
        parting: list[Item] = []
        leaving = False
        for item in items:
            leaving = leaving or any(end.ranks != ALL for end in ends([item]))
            if leaving or parts(item) or may_part(item):
                parting.append(item)
            elif _has_events(item):
                self._compare(parting)
                parting = []
            elif parting:
                parting.append(item)  # what follows may not be read
        self._compare(parting)

    def _compare(self, items: list[Item]) -> None:
        if not items or alike(view(items, 0), view(items, 1)):
            return
        if told := apart.telling(items):
            self._report(items, told)
            return
        inner = [item for item in items if _all_ranks(item) and _uneven(item)]
        inner = _fewest(items, inner) or inner
        rest = [item for item in items if item not in inner]
        if inner and alike(view(rest, 0), view(rest, 1)):
            for item in inner:
                if isinstance(item, Branch) and item.certain and not parts(item):
                    self._entered_by_certain(item)
                elif not (isinstance(item, Repeat) and self._left_early(item)):
                    for body in bodies(item):
                        self._segments(body)
            return
        self._report(items)

    def _report(self, items: list[Item], telling: int = 0) -> None:
        """``telling``: the rank that sends orders to the others, who do much that it does not seem
        to do; it may not enter what none of them does."""
        sides = [[e for e in events(items, rank) if e.ranks & (1 << rank)] for rank in (0, 1)]
        ops = [[event.op for event in side] for side in sides]
        matcher = SequenceMatcher(None, ops[0], ops[1], autojunk=False)
        parted = [code for code in matcher.get_opcodes() if code[0] != "equal"]
        if any(isinstance(item, Unread) for item in flat(items)):
            parted = parted[:1]  # later ones may be due to what was not read
        for _, a0, a1, b0, b1 in parted:
            for rank, first, last in ((0, a0, a1), (1, b0, b1)):
                alone = sides[rank][first:last]
                others = sides[1 - rank][b0 if rank == 0 else a0 :]
                for event in alone:
                    if telling and (telling != 1 << rank or event.op in ops[1 - rank]):
                        continue
                    self._unmatched(event, rank, alone, others, items)
        if not parted and not telling:
            self._exits_of_loops(items)

    def _unmatched(
        self,
        event: Event,
        rank: int,
        alone: Sequence[Event],
        others: Sequence[Event],
        items: list[Item],
    ) -> None:
        guard = next((g for g in reversed(event.guards) if g.ranks != ALL), None)
        if guard is not None and apart.asks_the_kind(event.guards, guard):
            return
        left = _exit_before(items, event, 1 - rank)
        if guard is not None and (left is None or _later(guard.site, left.site)):
            kind, left = "guard", None
        else:
            kind = "exit" if left is not None else "guard"
        paths = (tuple(alone), tuple(others[:4]))
        self.found.append(Mismatch(kind, event, guard, left, 1 << rank, paths))

    def _entered_by_certain(self, item: Branch) -> None:
        """Some ranks surely go one way, the others where something holds that is no rank's own:
        with several processes it need not."""
        one, other = item.arms if item.tests[item.certain - 1] else item.arms[::-1]
        event = next((e for e in events(one) if e.op in COLLECTIVE_OPS), None)
        if event is not None:
            guard = next((g for g in reversed(event.guards) if not g.test.known), None)
            paths = (tuple(events(one))[:4], tuple(events(other))[:4])
            self.found.append(Mismatch("guard", event, guard, None, item.certain, paths))

    def _left_early(self, loop: Repeat) -> bool:
        """One rank leaves a loop with collectives that the other goes on with."""
        end = next(
            (e for e in ends(loop.body) if e.ranks != ALL and e.exit.kind != "continue"), None
        )
        inside = list(events([loop]))
        if end is None or not inside or end.exit.kind == ABORT:
            return False
        event = _met_next(inside, end.exit)
        guard = next((g for g in reversed(end.exit.guards) if g.ranks != ALL), None)
        self.found.append(Mismatch("exit", event, guard, end.exit, ALL & ~end.ranks, ((), ())))
        return True

    def _exits_of_loops(self, items: list[Item]) -> None:
        """The same operations, but one rank leaves a loop that the other goes on with."""
        loops = (one for one in flat(items) if isinstance(one, Repeat) and _has_events(one))
        for end in chain(ends(items), *(ends(loop.body) for loop in loops)):
            if end.ranks != ALL and end.exit.kind in (*LEAVING, "stop"):
                inside = [e for e in events(items) if e.ranks & ~end.ranks] or list(events(items))
                if inside:
                    guard = next((g for g in reversed(end.exit.guards) if g.ranks != ALL), None)
                    event = _met_next(inside, end.exit)
                    self.found.append(
                        Mismatch("exit", event, guard, end.exit, event.ranks, ((), ()))
                    )
                return

    # -- conditions that each rank decides for itself --------------------------------------------

    def _splits(
        self,
        items: list[Item],
        after: list[Item],
        loop: list[Item] | None,
        beyond: Sequence[Item] = (),
    ) -> None:
        """``after``: what follows these items in the same round, out of the blocks they are in;
        ``beyond``: what else an error skips until it is caught."""
        for number, item in enumerate(items):
            rest = items[number + 1 :] + after
            if isinstance(item, Split) and (loop is None or not _meet_again(item, rest)):
                self._split(item, rest, loop, beyond)
            for body in bodies(item):
                if isinstance(item, Repeat) and body is item.body:
                    self._splits(body, [], body, [*body, *rest, *beyond])
                elif isinstance(item, Inline) and item.ends != BLOCK:
                    within = {"return": None, "break": body, "continue": loop, RAISE: loop}
                    skipped = [] if item.ends == RAISE else [*rest, *beyond]
                    self._splits(body, [], within[item.ends], skipped)
                else:
                    self._splits(body, rest, loop, beyond)

    def _split(
        self,
        item: Split,
        rest: list[Item],
        loop: list[Item] | None,
        beyond: Sequence[Item],
    ) -> None:
        known, arms = apart.premises(item)
        rest, beyond = apart.where(rest, known), apart.where(beyond, known)
        loop = None if loop is None else apart.where(loop, known)
        more = any(True for _ in events(rest))
        views = tuple(view(arm, 0) or view(arm, 1) for arm in arms)
        if any(v and v[-1] in CUT for v in views):
            return
        for one, other in ((0, 1), (1, 0)):
            kind = views[one][-1] if views[one] and views[one][-1] in ENDS else ""
            if not kind:
                continue
            within = loop if loop is not None and kind in ("break", "return") else None
            skipped = list(events(within)) if within is not None else list(events(arms[other]))
            if within is None and more:
                skipped += list(events(rest))
            if kind == RAISE:
                skipped += list(events([*rest, *beyond]))
            end = next((e.exit for e in ends(arms[one])), None)
            if skipped or (more and within is None):
                first = skipped[0] if skipped else None
                self._locally(item, first, end, arms[one], arms[other])
            return
        if not alike(views[0], views[1]):
            first = next(iter(_only(arms)), None)
            self._locally(item, first, None, *arms)

    def _locally(
        self,
        item: Split,
        event: Event | None,
        end: Exit | None,
        one: list[Item],
        other: list[Item],
    ) -> None:
        if event is not None:
            paths = (tuple(events(one))[:4], tuple(events(other))[:4])
            head = len(one) == 1 and isinstance(one[0], Repeat) and not other
            self.found.append(
                Mismatch("local", event, item.guard, end, item.ranks, paths, head and end is None)
            )


def _fewest(items: list[Item], uneven: list[Item]) -> list[Item]:
    """The fewest of these without which the ranks agree: the others meet each other."""
    few = len(uneven) if len(uneven) <= _FEW else 0
    with suppress(TooManyPaths), trial():
        for some in chain(*(combinations(reversed(uneven), n) for n in range(1, few))):
            rest = [one for one in items if one not in some]
            if alike(view(rest, 0), view(rest, 1)):
                return [one for one in uneven if one in some]
    return []


def _met_next(inside: Sequence[Event], left: Exit) -> Event:
    """What those that stay in a loop come to: behind the exit, or else in the next round."""
    later = (one for one in inside if one.call is not None and one.call.order > left.order)
    return next(later, inside[0])


def _meet_again(item: Split, rest: list[Item]) -> bool:
    """Whether either arm, with the rest of the round, leads to the same collectives."""
    rounds = {one_round(arm + rest, rank) for arm in item.arms for rank in (0, 1)}
    return len(rounds) == 1


def _only(arms: tuple[list[Item], list[Item]]) -> Iterator[Event]:
    """Events of one arm that the other has no counterpart for, then any."""
    sides = [list(events(arm)) for arm in arms]
    ops = [[event.op for event in side] for side in sides]
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, ops[0], ops[1], autojunk=False).get_opcodes():
        if tag != "equal":
            yield from sides[0][a0:a1]
            yield from sides[1][b0:b1]
    yield from (*sides[0], *sides[1])


def _exit_before(items: list[Item], event: Event, rank: int) -> Exit | None:
    """The last exit of ``rank`` alone that stands before ``event`` in the order of running, if it
    does not leave a loop without collectives only."""
    found: Exit | None = None
    retries = [one for one in flat(items) if isinstance(one, Repeat) and not _has_events(one)]
    inner = {one for loop in retries for one in flat(loop.body)}.difference(ends([*retries]))
    for item in flat(items):
        if item is event:
            return found
        if not isinstance(item, End) or item in inner:
            continue
        if item.ranks & (1 << rank) and item.ranks != ALL:
            found = item.exit
    return None


def _later(a: Site, b: Site) -> bool:
    return a.path == b.path and (a.span.line, a.span.column) > (b.span.line, b.span.column)


def _all_ranks(item: Item) -> bool:
    return item.ranks == ALL and not isinstance(item, (Event, End))


def _has_events(item: Item) -> bool:
    return any(True for _ in events([item]))


def _uneven(item: Item) -> bool:
    return not alike(view([item], 0), view([item], 1))
