"""Loops: how often their bodies are read, and what they leave behind."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ddpify.facts import growth
from ddpify.facts.joining import join
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, Guard, Loop
from ddpify.facts.values import NOTHING, Kind, Measure, Value, one

MOST_PASSES = 4
RANGE = "builtins.range"


def for_loop(m: Machine, f: Frame, node: ast.For | ast.AsyncFor) -> bool:
    over = m.evaluate(f, node.iter)
    element = _loop_element(m, f, node, over)
    loop = _open_loop(m, f, node, over, ast.unparse(node.target), "for")
    for _ in _rounds(m, f, loop):
        for each in _written_out(over) or (element,):
            m.assign(f, node.target, each)
            _loop_body(m, f, node.body)
    f.loop = loop.parent
    growth.fill(m, f, loop, node)
    m.close_loop(f, loop)
    _orelse(m, f, node)
    return False


def _rounds(m: Machine, f: Frame, loop: Loop) -> Iterator[None]:
    """Twice, as the second finds what the first has left; once in the second of a loop around it.

    There both were read: four loops in each other are five rounds of the innermost, not sixteen.
    """
    key, second = (loop.site, f.stack), m.second_round
    if not (second and key in m.repeated):
        yield
        m.second_round = True
    yield
    m.second_round = second
    m.repeated.add(key)


def _orelse(m: Machine, f: Frame, node: ast.For | ast.AsyncFor | ast.While) -> None:
    """What runs after a loop, unless a ``break`` has ended it."""
    if not node.orelse:
        return
    before = dict(f.env)
    ended = m.execute(f, node.orelse)
    if _has_break(node.body):
        merge(f, before, None if ended else dict(f.env))


def _written_out(over: Value) -> tuple[Value, ...]:
    """The passes of `for phase in ("train", "val")`, each with its own constant."""
    thing = over.things[0] if len(over.things) == 1 else None
    items = thing.items if thing is not None and thing.inner is None else None
    if not items or len(items) > MOST_PASSES or not all(isinstance(i.const, str) for i in items):
        return ()
    return items


def _loop_element(m: Machine, f: Frame, node: ast.For | ast.AsyncFor, over: Value) -> Value:
    """The loop variable; a plain counter gets an identity, so that an epoch can be recognised."""
    element = m.element_of(f, over)
    numbers = bool(over.things) and all(thing.name == RANGE for thing in over.things)
    plain = numbers and element.measure is Measure.UNIFORM
    if not element.things and (plain or not element.deps) and isinstance(node.target, ast.Name):
        counter = m.make(Kind.INDEX, f, m.site(f, node.target), node.target.id)
        return one(counter, element.deps)
    return element


def while_loop(m: Machine, f: Frame, node: ast.While) -> bool:
    m.evaluate(f, node.test)
    loop = _open_loop(m, f, node, NOTHING, "", "while")
    for _ in _rounds(m, f, loop):
        _loop_body(m, f, node.body)
        again = m.evaluate(f, node.test)
        loop.exits.append(Guard(again, loop.header, False))
    f.loop = loop.parent
    m.close_loop(f, loop)
    _orelse(m, f, node)
    endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
    return endless and not _has_break(node.body)


def _has_break(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Break) for s in body for n in ast.walk(s))


def _open_loop(
    m: Machine,
    f: Frame,
    node: ast.For | ast.AsyncFor | ast.While,
    over: Value,
    target: str,
    kind: str,
) -> Loop:
    site = m.site(f, node)
    body = m.site(f, node.body[0])
    header = m.site(f, node.iter if not isinstance(node, ast.While) else node.test)
    loop = Loop(site, header, target, over, f.function, f, body, kind, m.now, f.loop, len(f.guards))
    loop.names = dict(f.env)
    f.loop = loop
    m.loops.append(loop)
    return loop


def _loop_body(m: Machine, f: Frame, body: Sequence[ast.stmt]) -> None:
    before = dict(f.env)
    mark, skips = len(f.leaves), len(f.skips)
    ended = m.execute(f, body)
    exits = f.leaves[mark:]
    del f.leaves[mark:], f.skips[skips:]
    after = [] if ended else [dict(f.env)]
    for env in (before, *exits, *after):
        for name, value in env.items():
            known = f.env.get(name)
            if known is not value:
                f.env[name] = value if known is None else join(known, value)


def merge(f: Frame, a: dict[str, Value] | None, b: dict[str, Value] | None) -> None:
    if a is None or b is None:
        merged = a if b is None else b
    else:
        merged = {**a, **b}
        for name, value in a.items():
            if merged[name] is not value:
                merged[name] = join(value, merged[name])
    f.env.update(merged or {})
