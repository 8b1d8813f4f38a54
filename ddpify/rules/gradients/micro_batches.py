"""Micro-batches that do not step need no all-reduce: forward and backward under one condition. ::

    with gradient_sync(model, sync=(i + 1) % 4 == 0):
        loss = criterion(model(x), y) / 4
        loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()

DistributedDataParallel decides in the forward whether its backward averages, and averages all that
was added since the last time (``DistributedDataParallel.no_sync``). So the step's own condition is
asked before the forward, where it must be what it is later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ddpify.facts.events import Call, Forward
from ddpify.facts.model import Facts, Model, TrainingLoop
from ddpify.facts.roles import whole
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit
from ddpify.rules.gradients.naming import named_in
from ddpify.rules.gradients.step_conditions import StepWindow, asked_before, stored, window_of

# What has hold of a model, or of an optimizer, and leaves gradients as they are.
_HARMLESS = frozenset({".train", ".eval", ".zero_grad", ".parameters", ".scale", ".backward"})
_ONCE = (ast.Expr, ast.Assign, ast.AugAssign, ast.With)  # what is in them is done in each round
_TRAINED = (Kind.MODEL, Kind.WRAPPED, Kind.PARAMETERS, Kind.OPTIMIZER)


def saves_messages(facts: Facts, loop: TrainingLoop) -> tuple[Edit, ...]:
    """The edits after which the last micro-batch of a window alone is averaged; none if unsure."""
    models = _models(facts, loop)
    window = window_of(facts, loop)
    if window is None or not models or facts.whole_batches:
        return ()
    tree, block = window.tree, window.block
    first = _first(tree, block, [f.call for f in _forwards(facts, loop)])
    last = _first(tree, block, [loop.backward])
    if first is None or last is None:
        return ()
    held = block[first : last + 1]
    once = first <= last and isinstance(block[last], _ONCE)
    if not once or _looked_at(facts, loop, window):
        return ()
    sync = asked_before(facts, window, block[first:])
    names = _called(facts, loop, tree, held)
    if sync is None or names is None or len(names) != len(models):
        return ()
    code = ", ".join(f"gradient_sync({name}, sync={sync})" for name in names)
    return tuple(edit(facts, How.INDENT, tree.site(one), f"with {code}:") for one in held)


def _models(facts: Facts, loop: TrainingLoop) -> list[Model]:
    """The models that are called in the loop, where each averages whatever its forwards reach."""
    called = {whole(f.model).born for f in _forwards(facts, loop)}
    mine = [m for m in facts.models if called.intersection(t.born for t in m.things)]
    plain = all(not m.unused and m.home is not None and not m.home.each for m in mine)
    return mine if plain else []


def _forwards(facts: Facts, loop: TrainingLoop) -> list[Forward]:
    return [f for f in facts.training_forwards if loop.batch in f.call.where.loops()]


def _first(tree: Tree, block: Sequence[ast.stmt], calls: Sequence[Call]) -> int | None:
    """The first statement in which one of these calls is made; None where one is made elsewhere."""
    sites = [tree.site(one) for one in block]
    places = []
    for call in calls:
        way = (*call.where.stack, call.site)
        places.append([n for n, site in enumerate(sites) if any(s.within(site) for s in way)])
    return min(map(min, places)) if places and all(places) else None


def _looked_at(facts: Facts, loop: TrainingLoop, window: StepWindow) -> bool:
    """Whether a round may look at gradients, or change them, that are averaged later.

    So may what is given a model, its parameters or an optimizer and was not read. Where the
    window's step is taken they are averaged.
    """
    forwards = {f.call.site for f in _forwards(facts, loop)}
    synced = [window.tree.site(one) for one in window.synced]
    looking: list[ast.AST] = [window.tree.statement(window.rounds) or window.tree.module]
    for call in facts.calls:
        inside = [s for s in call.way if s.within(window.rounds)]
        stepping = any(s.within(one) for s in inside for one in synced)
        if not inside or stepping or call.site in forwards or call.name in _HARMLESS:
            continue
        if call.target is not None and not call.unread:
            looking.append(call.target.node)  # what it calls is asked, too
            continue
        given = [v for v in (call.receiver, *call.args, *call.kwargs.values()) if v is not None]
        if any(v.of(*_TRAINED) for v in given):
            return True
    nodes = (n for one in looking for n in _walk(one, window.synced))
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in nodes)


def _walk(node: ast.AST, without: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """What is in a node, but for some statements."""
    yield node
    for inner in ast.iter_child_nodes(node):
        if inner not in without:
            yield from _walk(inner, without)


def _called(
    facts: Facts, loop: TrainingLoop, tree: Tree, held: Sequence[ast.stmt]
) -> list[str] | None:
    """What the models are called by in these statements; None where one has no name there."""
    names: dict[str, None] = {}
    sites = [tree.site(one) for one in held]
    for forward in _forwards(facts, loop):
        name = named_in(facts, sites, forward.call)
        if name is None:
            return None
        names[name] = None
    bound = {n for one in held for n in stored(one)}
    return None if bound.intersection(names) else list(names)
