"""Micro-batches that do not step need no all-reduce: forward and backward under one condition. ::

    with gradient_sync(model, sync=(i + 1) % 4 == 0):
        loss = criterion(model(x), y) / 4
        loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()

DistributedDataParallel decides in the forward whether its backward averages, and averages all that
was added since the last time (``DistributedDataParallel.no_sync``). So the step's own condition is
asked before the forward, where it must be what it is later. A sharded model keeps what was added
and not averaged whatever clears the gradients, so that the last batch of a pass is averaged, too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from ddpify.facts.events import Call
from ddpify.facts.model import Facts, Model, TrainingLoop
from ddpify.facts.roles import whole
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Measure
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, is_local
from ddpify.rules.shared.gradient_reads import forwards_in, looked_at
from ddpify.rules.shared.naming import named_in
from ddpify.rules.shared.single_samples import deals_single, in_rounds, shortened
from ddpify.rules.shared.step_conditions import asked_before, stored, window_of
from ddpify.rules.shared.unfreezing import unfreezes
from ddpify.settings import Settings
from ddpify.source import Site
from ddpify.strategies import of

_ONCE = (ast.Expr, ast.Assign, ast.AugAssign, ast.With)  # what is in them is done in each round


def saves_messages(facts: Facts, settings: Settings, loop: TrainingLoop) -> tuple[Edit, ...]:
    """The edits after which the last micro-batch of a window alone is averaged; none if unsure."""
    models = _models(facts, loop)
    window = window_of(facts, loop)
    if window is None or not models or facts.whole_batches:
        return ()
    if of(settings).shards:  # where nothing clears what was not averaged: the last batch is
        window = replace(window, leftover=True)
    elif any(unfreezes(facts, model) for model in models):
        return ()  # perhaps within a window
    tree, block = window.tree, window.block
    first = _first(tree, block, [f.call for f in forwards_in(facts, loop)])
    last = _first(tree, block, [loop.backward])
    if first is None or last is None:
        return ()
    held = block[first : last + 1]
    once = first <= last and isinstance(block[last], _ONCE)
    if not once or looked_at(facts, loop, window):
        return ()
    sync = asked_before(facts, window, block[first:])
    names = _called(facts, loop, tree, held)
    if sync is None or names is None or len(names) != len(models):
        return ()
    sync = sync if settings.batch_size == "per-rank" else in_rounds(facts, loop, sync)
    return _held(facts, tree, held, names, sync)


def _held(
    facts: Facts, tree: Tree, held: Sequence[ast.stmt], names: Sequence[str], sync: str
) -> tuple[Edit, ...]:
    code = ", ".join(f"gradient_sync({name}, sync={sync})" for name in names)
    return _under(facts, tree, held, code)


def _under(facts: Facts, tree: Tree, held: Sequence[ast.stmt], code: str) -> tuple[Edit, ...]:
    return tuple(edit(facts, How.INDENT, tree.site(one), f"with {code}:") for one in held)


def averaged_by_hand(facts: Facts, settings: Settings, loop: TrainingLoop) -> tuple[Edit, ...]:
    """The edits after which no backward is averaged, and what a window has added is, at its end.

    So a rank may have no backward where its sample decides so: a batch is one sample. Of a sharded
    model it has one all the same, that adds nothing. None if unsure, or where no sample decides.
    """
    guards = [g for g in loop.backward.where.guards if is_local(facts, g.test)]
    steps = [step for step in facts.steps if loop.batch in step.where.loops()]
    if any(is_local(facts, g.test) for step in steps for g in step.where.guards):
        return ()  # a sample would decide whether its rank steps, too
    single = deals_single(loop.loaders) and all(g.test.measure is Measure.ENTRY for g in guards)
    if not guards or not single or settings.batch_size == "per-rank":
        return ()
    if shortened(facts, loop).why_not or any(_keeps(facts, loop, g.site) for g in guards):
        return ()
    window, models = window_of(facts, loop), _models(facts, loop)
    if window is None or window.leftover or not models or facts.whole_batches:
        return ()
    tree, block = window.tree, window.block
    first = _first(tree, block, [f.call for f in forwards_in(facts, loop)])
    last = _first(tree, block, [loop.backward])
    held = block[first : last + 1] if first is not None and last is not None else ()
    names = _called(facts, loop, tree, held)
    if not held or names is None or len(names) != len(models):
        return ()
    if of(settings).shards:  # of which no backward goes without the other ranks
        if any(g.test.dep(Kind.FORWARD, Kind.GRAPH) for g in guards):
            return ()  # what is left out for not being finite would be added, times zero
        once = len(forwards_in(facts, loop)) == 1
        return _under(facts, tree, held, f"backward_on_all({names[0]})") if once else ()
    begins = window.synced[0]
    begins = begins.body[0] if isinstance(begins, ast.If) and begins is block[-1] else begins
    averages = "\n".join(f"average_gradients({name})" for name in names)
    before = edit(facts, How.BEFORE, tree.site(begins), averages)
    return (*_held(facts, tree, held, names, "False"), before)


def _keeps(facts: Facts, loop: TrainingLoop, test: Site) -> bool:
    """Whether what a rank's own samples decide is kept for later: not sums of a pass alone."""
    tree = facts.tree(test)
    node = tree.expression(test)
    branch = tree.parent(node) if node is not None else None
    batches = tree.statement(loop.batch.site)
    around = tree.block(batches) if batches is not None else []
    before = around[: around.index(batches)] if batches in around else around
    begun = {name for one in before for name in stored(one)}
    sides = (*getattr(branch, "body", ()), *getattr(branch, "orelse", ()))
    return any(_is_kept(part, begun) for one in sides for part in ast.walk(one))


def _is_kept(part: ast.AST, begun: set[str]) -> bool:
    """``losses.append(…)``, ``mean = 0.9 * mean + …``, ``seen += 1`` of all passes together."""
    if isinstance(part, ast.AugAssign):
        return not isinstance(part.target, ast.Name) or part.target.id not in begun
    if isinstance(part, ast.Assign):
        read = {n.id for n in ast.walk(part.value) if isinstance(n, ast.Name)}
        return bool(read & set(stored(part)))
    return isinstance(part, ast.Call) and getattr(part.func, "attr", "") in ("append", "extend")


def _models(facts: Facts, loop: TrainingLoop) -> list[Model]:
    """The models that are called in the loop, where each averages whatever its forwards reach."""
    called = {whole(f.model).born for f in forwards_in(facts, loop)}
    mine = [m for m in facts.models if called.intersection(t.born for t in m.things)]
    plain = all(not m.unused and m.home is not None and not m.home.each for m in mine)
    return mine if plain else []


def _first(tree: Tree, block: Sequence[ast.stmt], calls: Sequence[Call]) -> int | None:
    """The first statement in which one of these calls is made; None where one is made elsewhere."""
    sites = [tree.site(one) for one in block]
    places = []
    for call in calls:
        way = (*call.where.stack, call.site)
        places.append([n for n, site in enumerate(sites) if any(s.within(site) for s in way)])
    return min(map(min, places)) if places and all(places) else None


def _called(
    facts: Facts, loop: TrainingLoop, tree: Tree, held: Sequence[ast.stmt]
) -> list[str] | None:
    """What the models are called by in these statements; None where one has no name there."""
    names: dict[str, None] = {}
    sites = [tree.site(one) for one in held]
    for forward in forwards_in(facts, loop):
        name = named_in(facts, sites, forward.call)
        if name is None:
            return None
        names[name] = None
    bound = {n for one in held for n in stored(one)}
    return None if bound.intersection(names) else list(names)
