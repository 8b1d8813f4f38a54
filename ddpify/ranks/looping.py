"""Loops, as two ranks run them: once for all rounds, or each round by itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ddpify.ranks import assigning, iterating, leaving
from ddpify.ranks.absent import note_absent
from ddpify.ranks.carried import LoopNode, changed, fields_set, read_rounds
from ddpify.ranks.counters import forgotten
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankGuard, RankLoop, RankValue
from ddpify.ranks.namespaces import namespaces, unsettle
from ddpify.ranks.narrowing import agreed_where
from ddpify.ranks.origins import Origin
from ddpify.ranks.paths import ROUNDS
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.rounds import Round, run_rounds
from ddpify.ranks.trace import Repeat, Split, ends
from ddpify.ranks.values import merge, same

NOBODY: frozenset[Origin] = frozenset()
BACKWARD = re.compile(r"\.backward\(|manual_backward\(")


def go_through(m: RankMachine, f: RankFrame, node: ast.For | ast.AsyncFor) -> None:
    """``for``."""
    over = m.evaluate(f, node.iter)
    note_absent(m, f, over, node.iter)
    trains = _trains(f, node)
    loop = RankLoop(node, f.module, over, trains)
    numbers = iterating.rounds_by_rank(over)
    if numbers is not None:
        run_rounds(m, f, node, loop, _counted(over, numbers))
        return
    unrolled = iterating.unrolled(over)
    if unrolled is not None:
        if iterating.stands_for_many(over):
            _forget(m, f, node)
        run_rounds(m, f, node, loop, map(iterating.by_holders, unrolled))
        return
    local = None
    before = _forget(m, f, node)
    if iterating.own_length(m, over):
        local = RankGuard(over, node.iter, f.module, True, m.live)
    read_rounds(m, f, node, lambda: _looped(m, f, node, loop, _over(node, over), local, over))
    _recall(m, f, before)
    _otherwise(m, f, node)


def _counted(over: RankValue, numbers: tuple[range, range]) -> Iterator[Round]:
    """``range`` of numbers that each rank knows: as often as they say, by each."""
    counts = (len(numbers[0]), len(numbers[1]))
    for one in range(max(counts)):
        ranks = sum(1 << rank for rank in (0, 1) if one < counts[rank])
        here = [own[one] for own in numbers if one < len(own)]
        element = replace(over, atoms=(here[0], here[-1]), things=(), deps=frozenset())
        yield ranks, element, replace(over, atoms=counts)


def _looped(
    m: RankMachine,
    f: RankFrame,
    node: ast.For | ast.AsyncFor,
    loop: RankLoop,
    key: str,
    local: RankGuard | None,
    over: RankValue,
) -> None:
    with leaving.block(m, f, node, "break", "continue") as block:
        with m.looping(loop, key, local):
            element = iterating.element(m, f, over, loop)
            assigning.assign(m, f, node.target, element)
            m.execute(f, node.body)
            through = m.live
        leaving.join(m, f, block, through)


def _forget(m: RankMachine, f: RankFrame, node: LoopNode) -> dict[str, RankValue]:
    """Constants that the loop's body changes are not known in it: it runs again and again.

    What it calls those that were None before.
    """
    unset = {}
    for name in changed(f.module, node):
        value = f.names.get(name)
        if value is not None and value.known and same(*value.atoms) and not value.things:
            one = forgotten(f.module, node, name, value)
            unknown = replace(value, atoms=(one, one))
            m.write(f.names, name, unknown)
            if value.atoms[0] is None:
                unset[name] = unknown
    for name, attribute in fields_set(f.module, node):
        for thing in namespaces(f.names[name]) if name in f.names else ():
            unsettle(m, thing, attribute, f.module.site(node))
    return unset


def _recall(m: RankMachine, f: RankFrame, unset: dict[str, RankValue]) -> None:
    """After a loop that has set a name on one rank alone, it is None on the other still."""
    for name, old in unset.items():
        new = f.names.get(name)
        kept = [new is not None and new.atoms[rank] == old.atoms[rank] for rank in (0, 1)]
        if new is not None and kept[0] is not kept[1] and new.by_rank:
            one, other = (
                None if same else atom for same, atom in zip(kept, new.atoms, strict=True)
            )
            m.write(f.names, name, replace(new, atoms=(one, other)))


def go_on_while(m: RankMachine, f: RankFrame, node: ast.While) -> None:
    """``while``."""
    if _is_skipped(m, f, node.test):
        m.execute(f, node.orelse)
        return
    before = _forget(m, f, node)
    read_rounds(m, f, node, lambda: _while_once(m, f, node))
    _recall(m, f, before)


def _is_skipped(m: RankMachine, f: RankFrame, test: ast.expr) -> bool:
    """Whether a condition, which calls nothing, does not hold when it is first asked."""
    if any(isinstance(one, (ast.Call, ast.NamedExpr)) for one in ast.walk(test)):
        return False
    return not m.may(m.evaluate(f, test), m.live, True)


def _while_once(m: RankMachine, f: RankFrame, node: ast.While) -> None:
    test = m.evaluate(f, node.test)
    m.run.asked.append((test, m.live, f.module.site(node.test)))
    live = m.may(test, m.live, True)
    if not live:
        m.execute(f, node.orelse)
        return
    loop = RankLoop(node, f.module, None, _trains(f, node))
    local = RankGuard(test, node.test, f.module, True, m.live) if m.is_local(test, m.live) else None
    outside, m.live = m.live, live
    here = m.here
    if live != outside:
        m.here = here.under(RankGuard(test, node.test, f.module, True, live))
    with leaving.block(m, f, node, "break", "continue") as block:
        with m.looping(loop, _key(f, node.test), local):
            m.execute(f, node.body)
            again = m.evaluate(f, node.test) if m.live else test
            through = 0 if test.constant is True else m.live
        leaving.join(m, f, block, through)
    m.here = here
    made = m.items[-1] if m.items else None
    if isinstance(made, Repeat) and made.node is node:
        made.asked = again
        if m.is_local(again, m.live):
            _leave_locally(m, f, again, node)
    m.live = outside
    _otherwise(m, f, node)


def _otherwise(m: RankMachine, f: RankFrame, node: LoopNode) -> None:
    """``else`` of a loop: a ``break`` skips it, and goes on after it."""
    live, items = m.live, m.items
    loop = items[-1] if items else None
    within = isinstance(loop, Repeat) and loop.node is node and loop.ranks == live
    if isinstance(loop, Repeat) and within and any(e.exit.kind == "break" for e in ends(loop.body)):
        m.items = loop.orelse
        changes = m.tried(lambda: m.execute(f, node.orelse))
        ended = not m.live
        for (_, key), (space, new) in changes.items():
            old = space.get(key)
            held = [new] if old is None else [old] if ended else [old, new]
            m.write(space, key, merge(f"{key}@{f.module.path}:{node.lineno}", (held, held), NOBODY))
        m.live, m.items = live, items
    else:
        m.execute(f, node.orelse)


def _leave_locally(m: RankMachine, f: RankFrame, test: RankValue, node: ast.While) -> None:
    """``while not stop`` whose body sets ``stop`` to what each rank has for itself."""
    guard = RankGuard(test, node.test, f.module, True, m.live)
    m.items[-1] = Split(guard, ([m.items[-1]], []), m.live, agreed_where(m, test))


def _trains(f: RankFrame, node: LoopNode) -> bool:
    """Whether a loop holds a ``backward()``; its text is asked first, where comments count."""
    last = node.end_lineno or node.lineno
    if not any(BACKWARD.search(line) for line in f.module.source.lines[node.lineno - 1 : last]):
        return False
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(ast.unparse(func).endswith("backward") for func in calls)


def _over(node: ast.For | ast.AsyncFor, over: RankValue) -> str:
    """What a loop goes over, by the numbers where those are known: ``range(3)``."""
    made = over.made_by("builtins.range")
    given = made.call.args if made is not None and made.call is not None else ()
    numbers = [one.constant for one in given]
    known = numbers and all(isinstance(number, int) for number in numbers)
    return f"{ROUNDS}{tuple(numbers)}" if known else ast.unparse(node.iter)


def _key(f: RankFrame, node: ast.expr) -> str:
    return ast.unparse(node)
