"""What those set who left a loop or a function early: it is so where they go on, and for them.

``for name in NAMES: if name in os.environ: rank = int(os.environ[name]); break``
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ddpify.ranks.aliases import Changes
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RANK0, RANK1, RankGuard, RankValue
from ddpify.ranks.origins import RANK, Origin
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import merge


@dataclass(frozen=True)
class _Left:
    """Some ranks that left, with what they had set, and the conditions that led there."""

    ranks: int
    changes: Changes
    guards: tuple[RankGuard, ...]


@dataclass
class ReadBlock:
    """A loop, or a function, while it is read: how long the journal was, who came, under what.

    ``stayed``: who left it as its last act, under no condition: the names are as they left them.
    """

    node: ast.AST
    mark: int
    live: int
    depth: int
    kinds: tuple[str, ...]
    left: list[_Left] = field(default_factory=list)
    stayed: int = 0


@contextmanager
def block(m: RankMachine, f: RankFrame, node: ast.AST, *kinds: str) -> Iterator[ReadBlock]:
    """A block that these exits leave."""
    one = ReadBlock(node, len(m.journal), m.live, len(m.here.guards), kinds)
    f.blocks.append(one)
    try:
        yield one
    finally:
        f.blocks.pop()


def note(m: RankMachine, f: RankFrame, kind: str) -> None:
    """The ranks that are here leave the innermost block of this kind."""
    one = next((one for one in reversed(f.blocks) if kind in one.kinds), None)
    if one is None:
        return
    if len(m.here.guards) <= one.depth:
        one.stayed |= m.live
        return
    changes = m.since(one.mark, f.names if kind == "return" else None)
    one.left.append(_Left(m.live, changes, m.here.guards[one.depth :]))


def join(m: RankMachine, f: RankFrame, one: ReadBlock, through: int) -> None:
    """After a block: what is set is what any of those had set who come here; ``through``: the
    ranks that may have come to its end."""
    spaces = {key: space for left in one.left for key, (space, _) in left.changes.items()}
    reasons = _reasons(m, one)
    if reasons or any(left.ranks & ~(through | one.stayed) for left in one.left):  # set no more
        names = f.names if "return" in one.kinds else None
        spaces |= {key: space for key, (space, _) in m.since(one.mark, names).items()}
    if not spaces:
        return
    first = m.before(one.mark)
    alone = any(m.is_local(guard.test, one.live) for left in one.left for guard in left.guards)
    for (number, key), space in spaces.items():
        now = space.get(key)
        old = first.get((number, key), now)
        sources: tuple[list[RankValue], list[RankValue]] = ([], [])
        for rank in (0, 1):
            values = [now] if (through | one.stayed) & (1 << rank) else []
            values += [
                left.changes[number, key][1] if (number, key) in left.changes else old
                for left in one.left
                if left.ranks & (1 << rank)
            ]
            sources[rank].extend(value for value in values if value is not None)
        if not sources[0] and not sources[1]:
            continue
        apart = sources[0] != sources[1] and bool(sources[0]) and bool(sources[1])
        why = reasons or (_by_rank(f, one) if apart else frozenset())
        held = (sources[0] or sources[1], sources[1] or sources[0])
        name = f"{key}@{f.module.path}:{getattr(one.node, 'lineno', 0)}"
        m.write(space, key, merge(name, held, why, alone))
    one.left.clear()


def only_on(
    m: RankMachine,
    f: RankFrame,
    mark: int,
    ranks: int,
    why: frozenset[Origin],
    but: dict[str, RankValue] | None = None,
) -> None:
    """What was set since ``mark``, beside the names in ``but``, is so on these ranks alone."""
    before = m.before(mark)
    for (number, key), (space, new) in m.since(mark, but).items():
        old = before.get((number, key))
        if old is not None and old is not new:
            first, second = ([new] if ranks & one else [old] for one in (RANK0, RANK1))
            name = f"{key}@{f.module.path}:{mark}"
            m.write(space, key, merge(name, (first, second), why))


def _reasons(m: RankMachine, one: ReadBlock) -> frozenset[Origin]:
    """Why not all may have left at the same place."""
    tests = [guard.test for left in one.left for guard in left.guards]
    apart = (test for test in tests if test.by_rank or m.is_local(test, one.live))
    return frozenset().union(*(test.origins for test in apart))


def _by_rank(f: RankFrame, one: ReadBlock) -> frozenset[Origin]:
    return frozenset({Origin(RANK, "rank", f.module.site(one.node))})
