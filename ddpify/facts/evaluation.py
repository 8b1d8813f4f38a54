"""Where evaluation should call the inner module, or go through the training loader whole.

The wrapper broadcasts buffers in evaluations, too (DDP304), so these and sampling go around it; a
training loader gives each rank its share. The outermost argument that only evaluation uses is the
smallest edit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts import roles
from ddpify.facts.details import loader_arguments
from ddpify.facts.events import Forward
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing, Value
from ddpify.source import Site


def unwraps(m: Machine) -> tuple[tuple[Site, Forward], ...]:
    """(expression, forward) for each evaluation forward through a wrapper."""
    calls = roles.calls_of(m)
    forwards = roles.forwards_of(m)
    trained = roles.training_forwards(calls, forwards)
    training = [f for f in forwards if f.output in trained]
    found: dict[Site, Forward] = {}
    for forward in forwards:
        if forward.output in trained or forward.model.kind is not Kind.WRAPPED:
            continue
        site = _site(m, forward, training)
        if site is not None:
            found.setdefault(site, forward)
    return tuple(found.items())


def _site(m: Machine, forward: Forward, training: list[Forward]) -> Site | None:
    """The outermost safe expression that carries the model to this forward."""
    best: Site | None = None
    frame: Frame | None = forward.call.where.frame
    site: Site | None = forward.call.owner_site
    if not any(t.call.owner_site == site for t in training):
        best = site
    while frame is not None and site is not None:
        node = m.tree(site.path).expression(site)
        name = node.id if isinstance(node, ast.Name) else None
        passed = frame.parameters.get(name) if name is not None else None
        if passed is None or _trains_below(frame, training):
            break
        best = site = passed
        frame = frame.caller
    return best


def _trains_below(frame: Frame, training: list[Forward]) -> bool:
    """Whether a training forward happens inside this same call."""
    depth = len(frame.stack)
    return any(t.call.where.stack[:depth] == frame.stack for t in training)


def evaluated_whole(m: Machine) -> dict[Site, frozenset[Site]]:
    """Where loops that do not train take training loaders from, and the calls that made those."""
    training = roles.training_loops(roles.calls_of(m))
    trained = {loader for loop in training for loader in loop.loaders}
    heads = {loop.batch.site for loop in training}
    found: dict[Site, frozenset[Site]] = {}
    for loop in m.loops:
        if loop.frame.yields or loop.site in heads or trained.isdisjoint(loaders_in(loop.over)):
            continue
        for header in carriers(m.tree(loop.header.path), m.values, loop):
            site = _outermost(loop, header, m, training)
            things = m.values[site].of(Kind.LOADER) if site in m.values else ()
            others = [thing for thing in things if thing not in trained]
            if len(others) < len(things) and all(map(_has_no_sampler, others)):
                found[site] = frozenset(thing.born for thing in things)
    return found


def _has_no_sampler(loader: Thing) -> bool:
    return all(value.known and value.const is None for value in loader_arguments(loader).samplers)


def carriers(tree: Tree, values: dict[Site, Value], loop: Loop) -> Iterator[Site]:
    """The expressions in a loop's head that are loaders."""
    todo: list[ast.AST] = [node for node in (tree.expression(loop.header),) if node is not None]
    while todo:
        node = todo.pop(0)
        value = values.get(tree.site(node)) if isinstance(node, ast.expr) else None
        if value is not None and value.of(Kind.LOADER):
            yield tree.site(node)
        else:
            todo += ast.iter_child_nodes(node)


def _outermost(loop: Loop, site: Site, m: Machine, training: tuple[TrainingLoop, ...]) -> Site:
    """The argument that carries a loader to this loop, and to none that trains."""
    frame: Frame | None = loop.frame
    while frame is not None:
        stack, node = frame.stack, m.tree(site.path).expression(site)
        passed = frame.parameters.get(node.id) if isinstance(node, ast.Name) else None
        if passed is None or any(t.backward.where.stack[: len(stack)] == stack for t in training):
            break
        site, frame = passed, frame.caller
    return site
