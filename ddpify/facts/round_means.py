"""Means over the rounds of a training loop: of one rank until the ranks average them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ddpify.facts.accumulators import REDUCERS, already_reduced
from ddpify.facts.events import Call, LoopEnd
from ddpify.facts.growth import LISTS, MUTATES
from ddpify.facts.locality import is_local, is_shared_out, loaders_in
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.values import NOTHING, Measure, Value

MEAN: Final = "mean"


def close_means(m: Machine, f: Frame, node: ast.Assign) -> None:
    """Record that ``loss = np.mean(losses)`` is averaged where it is made, and count it as that.

    So is ``loss = train(model)``, whose loop is over by then. A round gives each rank an entry: the
    mean of their means is that over the whole batches.
    """
    found = [name for name in _bound(node) if _is_mean(m, f.env.get(name))]
    if not found or any(is_local(m, guard.test) for guard in f.guards):
        return
    loop = _loop_behind(m, f, node)
    tree, site = m.tree(f.module.source.path), m.site(f, node)
    done = already_reduced(f, tree, node, REDUCERS)
    found = [name for name in found if name not in done and tree.read_after(node, name)]
    if found and loop is not None:
        there = replace(loop, site=site, header=site, kind=MEAN)
        m.ends[site, f.stack] = LoopEnd(there, m.where(f), (), tuple(found), (), ())
        for name in found:
            f.bind(name, f.env[name].reduced())


def _bound(node: ast.Assign) -> Iterator[str]:
    for target in node.targets[:1] if len(node.targets) == 1 else ():
        every = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (each.id for each in every if isinstance(each, ast.Name))


def _is_mean(m: Machine, value: Value | None) -> bool:
    plain = value is not None and value.measure is Measure.MEAN and not value.things
    return plain and value is not None and is_local(m, value)


def _loop_behind(m: Machine, f: Frame, node: ast.Assign) -> Loop | None:
    """The training loop that filled the lists which a mean is of, or ran in the call it is from."""
    site = m.site(f, node)
    names = [m.site(f, n) for n in ast.walk(node.value) if isinstance(n, ast.Name)]
    lists = {t for name in names for t in m.values.get(name, NOTHING).of(*LISTS)}
    grown = [
        next((loop for loop in call.where.loops() if _trains(m, loop)), None)
        for call in m.events.named(f".{name}" for name in MUTATES)
        if call.receiver is not None and not lists.isdisjoint(call.receiver.things)
    ]
    if grown:
        inside = any(loop is None or site.within(loop.site) for loop in grown)
        return None if inside else grown[-1]
    way = (*f.stack, m.site(f, node.value))
    ran = (loop for loop in reversed(m.loops) if loop.frame.stack[: len(way)] == way)
    return next((loop for loop in ran if _trains(m, loop)), None)


def _trains(m: Machine, loop: Loop) -> bool:
    shared = any(is_shared_out(m, thing) for thing in loaders_in(loop.over))
    happened = m.events.during(loop) if shared else ()
    return any(isinstance(e, Call) and e.name == ".backward" for e in happened)
