"""Conditions, exits and loops: which ranks go where, and what they are told apart by afterwards."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ddpify.ranks import leaving, narrowing, words
from ddpify.ranks.aliases import is_container
from ddpify.ranks.entries import Unset, with_lack
from ddpify.ranks.events import Exit
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RANK0, RANK1, RankGuard, RankLoop, RankValue
from ddpify.ranks.origins import CLOCK, DATA, IDENTITY, RANDOM, RANK, SYNCED, Origin, Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.trace import Branch, End, Item, Repeat, Split
from ddpify.ranks.values import asks_presence, merge, narrowed

_INIT = f"{words.DIST}init_process_group"


def branch(
    m: RankMachine, f: RankFrame, test: RankValue, node: ast.expr, arms: tuple[Any, Any]
) -> None:
    """Run ``arms`` (callables) under a condition: each for the ranks that may take it."""
    live = m.live
    m.run.asked.append((test, live, f.module.site(node)))
    takes = [may(m, test, live, True), may(m, test, live, False)]
    local = is_local(m, test, live)
    results = []
    told: list[Any] = []
    opens: list[bool] = []
    mark = len(m.journal)
    items = m.items
    for arm, holds in zip(arms, (True, False), strict=True):
        ranks = takes[0 if holds else 1]
        m.live, m.items = ranks, []
        told.append(narrowing.narrow(m, f, test, node, holds) if ranks else [])
        made = len(m.run.calls)
        if ranks:
            here = m.here
            divides = ranks != live and not local
            reach = ranks if divides else ALL
            m.here = here.under(RankGuard(test, node, f.module, holds, reach))
            try:
                arm()
            finally:
                m.here = here
        opens.append(any(call.name == _INIT for call in m.run.calls[made:]))
        results.append((m.live, m.items, m.take_back(mark)))
    m.items = items
    if takes == [live, live] and not local and opens[0] is not opens[1]:
        takes, results = _of_several(m, test, opens[0], live, results)
    narrowing.widen(told, results)
    _add_condition(m, f, test, node, live, takes, local, results)
    _merge(m, f, test, node, live, takes, results)
    m.live = results[0][0] | results[1][0]


def _of_several(
    m: RankMachine, test: RankValue, holds: bool, live: int, results: list[Any]
) -> tuple[list[int], list[Any]]:
    """After ``if world > 1: init_process_group()`` several processes have come by this arm, and
    the condition is answered, unless it ends there: then what follows is for one process."""
    here = results[0 if holds else 1]
    if here[0] != live:
        return [live, live], results
    m.settled.settle(test, holds)
    none: tuple[int, list[Item], dict[Any, Any]] = (0, [], {})
    return ([live, 0], [here, none]) if holds else ([0, live], [none, here])


def may(m: RankMachine, test: RankValue, live: int, holds: bool) -> int:
    """The ranks for which a condition may be ``holds``."""
    ranks = 0
    for rank in (0, 1):
        known = m.settled.answer(test.atoms[rank])
        if live & (1 << rank) and (known is None or known is holds):
            ranks |= 1 << rank
    return ranks


def is_local(m: RankMachine, test: RankValue, live: int) -> bool:
    """Whether each rank may decide this for itself, in a way that is not known here."""
    if any(isinstance(atom, Symbol) and atom.key == SYNCED for atom in test.atoms):
        return False  # one rank has what the other sent
    if asks_presence(test):
        return False
    unknown = any(live & (1 << r) and m.settled.answer(test.atoms[r]) is None for r in (0, 1))
    apart = live == ALL and test.by_rank and _told_apart(test)
    return unknown and (apart or own(m, test.origins))


def own(m: RankMachine, origins: frozenset[Origin]) -> bool:
    """Whether one of these origins makes a value each rank's own, beside the rank itself."""
    return any(decides(m, origin) for origin in origins)


def decides(m: RankMachine, origin: Origin) -> bool:
    """Whether ranks may come to different conclusions: callers that are not seen may seed, and
    files are taken to be those of all. What was drawn before they were spawned is one number."""
    if origin.worded or (origin.site in m.run.shared and origin.kind in (CLOCK, RANDOM)):
        return False
    if origin.kind == RANDOM:
        return m.run.script
    return origin.kind in (DATA, CLOCK)


def _add_condition(
    m: RankMachine,
    f: RankFrame,
    test: RankValue,
    node: ast.expr,
    live: int,
    takes: list[int],
    local: bool,
    results: list[Any],
) -> None:
    arms = (results[0][1], results[1][1])
    if not arms[0] and not arms[1]:
        return
    if takes[0] == 0 or takes[1] == 0:
        m.items += arms[0] or arms[1]
    elif local and takes[0] == takes[1]:
        guard = RankGuard(test, node, f.module, True, live)
        m.items.append(Split(guard, arms, live, narrowing.agreed_where(m, test)))
    else:
        known = [(atom, m.settled.answer(atom)) for atom in test.atoms]
        tests = [atom if holds is None else holds for atom, holds in known]
        m.items.append(Branch((tests[0], tests[1]), arms, live))


def _merge(
    m: RankMachine,
    f: RankFrame,
    test: RankValue,
    node: ast.expr,
    live: int,
    takes: list[int],
    results: list[Any],
) -> None:
    changed = {**results[0][2], **results[1][2]}
    alone = is_local(m, test, live)
    apart = takes[0] != takes[1] or alone
    why: frozenset[Origin] = frozenset()
    if apart and test.origins:
        why = test.origins
    elif takes[0] != takes[1] and takes[0] and takes[1]:
        why = frozenset({Origin(RANK, "rank", f.module.site(node))})
    merged: dict[tuple[Any, ...], RankValue] = {}  # two names of one list stay so
    for (number, key), (space, _) in changed.items():
        old = space.get(key)
        sources = _sources((number, key), old, live, takes, results)
        if sources is None:
            continue
        lists = is_container(sources[0][0])
        same = (id(old), *(tuple(map(id, values)) for values in sources)) if lists else ()
        if not lists or same not in merged:
            name = f"{key}@{f.module.path}:{node.lineno}"
            made = merge(name, sources, why, alone)
            merged[same] = made if old is None else narrowed(old, made, live)
            if old is not None and isinstance(old.atoms[0], Unset) and test.by_rank:
                merged[same] = with_lack(merged[same], sources, why)
            if takes == [live, live] and not why:
                narrowing.remember(m, test, merged[same], sources[0])
        m.write(space, key, merged[same])
        if old is None and test.by_rank and not _is_defined(f, key):
            _note_partial(f, test, (number, key), merged[same], takes, results)


def _note_partial(
    f: RankFrame,
    test: RankValue,
    name: tuple[int, str],
    value: RankValue,
    takes: list[int],
    results: list[Any],
) -> None:
    """Keep that one rank goes on without a name, which the other may have set in its arm."""
    reasons = (origin for origin in test.origins if origin.kind in IDENTITY)
    why = min(reasons, key=lambda origin: origin.site)
    sets = [may if name in one[2] else 0 for may, one in zip(takes, results, strict=True)]
    lacking = (takes[0] | takes[1]) & ~(sets[0] | sets[1])
    if lacking in (RANK0, RANK1):
        f.partial[name[1]] = (value, lacking >> 1, why)


def _is_defined(f: RankFrame, name: str) -> bool:
    """Whether a name of a file is also one from elsewhere: ``if rank: print = silent``."""
    return f.function is None and (hasattr(builtins, name) or bool(f.module.stars))


def end(m: RankMachine, f: RankFrame, kind: str, node: ast.AST) -> None:
    """The ranks that are here leave."""
    leaving.note(m, f, kind)
    made = Exit(
        m.tick(),
        kind,
        node,
        f.module,
        m.live,
        m.here.guards,
        m.here.loops,
        f.function,
    )
    m.run.exits.append(made)
    m.items.append(End(made, m.live))
    m.live = 0


@contextmanager
def looping(
    m: RankMachine, loop: RankLoop, key: str, local: RankGuard | None = None
) -> Iterator[None]:
    """The body of a loop."""
    live, items, here = m.live, m.items, m.here
    m.items, m.here = [], replace(here, loops=(*here.loops, loop))
    m.run.loops.append(loop)
    try:
        yield
    finally:
        body, m.items, m.here, m.live = m.items, items, here, live
        if body:
            one: Item = Repeat(key, loop.node, body, live)
            agreed = narrowing.agreed_where(m, local.test) if local else None
            m.items.append(Split(local, ([one], []), live, agreed) if local else one)


def _sources(
    key: tuple[int, str], old: RankValue | None, live: int, takes: list[int], results: list[Any]
) -> tuple[list[RankValue], list[RankValue]] | None:
    """What a name may be on each rank after the arms of a branch; None if no rank comes out.

    A rank that is not here has no say.
    """
    sources: tuple[list[RankValue], list[RankValue]] = ([], [])
    for rank in (0, 1):
        for (after, _, changes), may in zip(results, takes, strict=True):
            if may & after & (1 << rank):
                value = changes[key][1] if key in changes else old
                sources[rank].extend([value] if value is not None else [])
    if not sources[0] and not sources[1]:
        return None
    for rank in (0, 1):
        if not sources[rank]:
            here = [old] if old is not None and live & (1 << rank) else []
            sources[rank].extend(here or sources[1 - rank])
    return sources


def _told_apart(test: RankValue) -> bool:
    """Whether a condition on the rank is another one on each: ``rank in ranks``."""
    keys = [atom.key for atom in test.atoms if isinstance(atom, Symbol)]
    return len(set(keys)) == 2 and SYNCED not in keys
