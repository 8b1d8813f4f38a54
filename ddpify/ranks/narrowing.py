"""What a condition says about the name that it asks: ``isinstance(model, DDP)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ddpify.ranks import words
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankGuard, RankThing, RankValue
from ddpify.ranks.origins import Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import key_of

_SAID = ("module", "DDP", "DistributedDataParallel", "DataParallel")
Place = tuple[dict[str, RankValue], str]  # where a name or an attribute is kept
_WRAPS = words.WRAPPERS | {words.DATA_PARALLEL}


def narrow(
    m: RankMachine, f: RankFrame, test: RankValue, asked: ast.expr, holds: bool
) -> list[tuple[Place, RankValue]]:
    """Leave to the names that a condition asks what they can be where it holds, or does not."""
    made = _recalled(m, f, test, holds)
    for node, wanted in questions(asked, holds):
        place = _place(m, f, node.args[0])
        if place is None:
            continue
        value = place[0][place[1]]
        left = tuple(t for t in value.things if _may_be(m, f, t, node, wanted))
        if left and len(left) < len(value.things):
            one = replace(value, things=left)
            m.write(*place, one)
            made.append((place, one))
    return made


def remember(m: RankMachine, test: RankValue, made: RankValue, arms: list[RankValue]) -> None:
    """After ``if stop: steps = broadcast(steps)``, whose ranks agree: both that it can be.

    A list that takes something up has the name of the empty one that the next call makes.
    """
    if len(arms) != 2 or arms[0].origins == arms[1].origins or not _is_unknown(made):
        return
    if key_of(made) not in map(key_of, arms):
        m.choices[key_of(made)] = (key_of(test), arms[0], arms[1])
        m.deciding.add(key_of(test))


def agreed_where(m: RankMachine, test: RankValue) -> tuple[str, bool] | None:
    """The condition under which ranks agree on another one: it was made the same on all of them
    there, as in ``if distributed: stop = broadcast(stop)``."""
    for asked, first, second in (m.choices[key] for key in _keys(test) if key in m.choices):
        for here, there, holds in ((first, second, True), (second, first, False)):
            own = {one for one in test.origins if m.own(frozenset({one}))}
            if not m.own(here.origins) and own <= there.origins:
                return (asked[4:], not holds) if asked.startswith("not ") else (asked, holds)
    return None


def _keys(test: RankValue) -> set[str]:
    """The parts of a condition that are not known, by name."""
    found: set[str] = set()
    todo = [atom for atom in test.atoms if isinstance(atom, Symbol)]
    while todo:
        one = todo.pop()
        found.add(one.key)
        todo += [part for part in one.parts if isinstance(part, Symbol)]
    return found


def remember_returns(
    m: RankMachine, made: RankValue, returned: list[tuple[int, RankValue, Any]], outer: int
) -> None:
    """After ``if not distributed: return x``, ``return all_reduce(x)``: both that was returned."""
    if len(returned) == 2 and len(returned[0][2]) == outer + 1:
        guard = returned[0][2][-1]
        arms = [returned[0][1], returned[1][1]]
        remember(m, guard.test, made, arms if guard.holds else arms[::-1])


def _recalled(
    m: RankMachine, f: RankFrame, test: RankValue, holds: bool
) -> list[tuple[Place, RankValue]]:
    """What names are where a condition that was asked before holds, or does not."""
    made: list[tuple[Place, RankValue]] = []
    if key_of(test) not in m.deciding or not _is_unknown(test):
        return made
    for name, value in list(f.names.items()):
        asked, first, second = m.choices.get(key_of(value), ("", value, value))
        if asked == key_of(test):
            one = first if holds else second
            m.write(f.names, name, one)
            made.append(((f.names, name), one))
    return made


def _is_unknown(value: RankValue) -> bool:
    return isinstance(value.atoms[0], Symbol)


def widen(told: list[list[tuple[Place, RankValue]]], results: list[Any]) -> None:
    """After both arms an unchanged name is what it was before them."""
    if not (results[0][0] and results[1][0]):
        return
    for (space, key), one in told[0]:
        mark = (id(space), key)
        for place, other in told[1]:
            unchanged = (id(place[0]), place[1]) == mark and all(
                result[2][mark][1] is value
                for result, value in zip(results, (one, other), strict=True)
            )
            if unchanged:
                del results[0][2][mark], results[1][2][mark]


def questions(test: ast.expr, holds: bool) -> Iterator[tuple[ast.Call, bool]]:
    """The questions in a condition, with the answer that is sure."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from questions(test.operand, not holds)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is holds:
        for operand in test.values:
            yield from questions(operand, holds)
    elif isinstance(test, ast.Call) and len(test.args) == 2 and _is_question(test.func):
        yield test, holds


def says_bare(guard: RankGuard, owner: ast.expr) -> bool:
    """Whether a condition lets past only what is in no wrapper: ``not hasattr(net, "module")``."""
    text = ast.unparse(owner)
    for node, wanted in questions(guard.node, guard.holds):
        asks = ast.unparse(node.args[1]).strip("'\"()").rpartition(".")[2]
        if not wanted and ast.unparse(node.args[0]) == text and asks in _SAID:
            return True
    return False


def _is_question(func: ast.expr) -> bool:
    return isinstance(func, ast.Name) and func.id in ("isinstance", "hasattr")


def _place(m: RankMachine, f: RankFrame, node: ast.expr) -> Place | None:
    if isinstance(node, ast.Name):
        frame: RankFrame | None = f
        while frame is not None:
            if node.id in frame.names and node.id not in frame.outward:
                return frame.names, node.id
            frame = frame.outer
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        things = m.evaluate(f, node.value).things
        if len(things) == 1 and things[0].kind == "instance" and node.attr in things[0].attrs:
            return things[0].attrs, node.attr
    return None


def _may_be(m: RankMachine, f: RankFrame, thing: RankThing, node: ast.Call, holds: bool) -> bool:
    asked = m.evaluate(f, node.args[1])
    if isinstance(node.func, ast.Name) and node.func.id == "hasattr":
        answer = _has(thing, asked.constant)
    else:
        wanted = {name for one in asked.items or (asked,) for name in one.names()}
        answer = is_one(thing, wanted)
    return answer is None or answer is holds


def _has(thing: RankThing, name: Any) -> bool | None:
    if name != "module":
        return None
    if thing.kind == "result" and thing.name in _WRAPS:
        return True
    return False if _is_bare(thing) and name not in thing.attrs else None


def is_one(thing: RankThing, wanted: set[str]) -> bool | None:
    """Whether a thing is one of these wrappers; None if that is not known, or not asked."""
    if not wanted or not wanted <= _WRAPS:
        return None
    if thing.kind == "result" and thing.name in _WRAPS:
        return thing.name in wanted
    return False if _is_bare(thing) else None


def _is_bare(thing: RankThing) -> bool:
    """Whether a thing is a module that wraps no other one."""
    if thing.cls is not None:
        return _WRAPS.isdisjoint(thing.cls.external_bases())
    return thing.kind == "result" and thing.name.startswith("torch.nn.")
