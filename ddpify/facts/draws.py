"""Loops that train on what each pass draws, around the loop over a loader: noise, for a generator.

while i < len(loader):
    for _ in range(critic_steps): ...       # trains the critic, on next(batches)
    fake = generator(torch.randn(batch_size, 100))

Each rank draws for itself there, so that nothing is to be divided but the number of rows.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from ddpify.facts import measures, roles
from ddpify.facts.bodies import flows, loaded
from ddpify.facts.details import call_that_made
from ddpify.facts.effects import effect_of
from ddpify.facts.events import Call, Forward
from ddpify.facts.gradients import behind
from ddpify.facts.joining import flat_deps
from ddpify.facts.model import TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.source import Site

MODELS = (Kind.MODEL, Kind.WRAPPED)
SAME = (Kind.ARGUMENT, Kind.DEVICE, *MODELS)
LIBRARIES = frozenset({"torch", "builtins", "math"})  # what they have is no data
OF_DRAWS = (
    *MODELS,
    Kind.PARAMETERS,
    Kind.FORWARD,
    Kind.GRAPH,
    Kind.RANDOM,
    Kind.ARGUMENT,
    Kind.DEVICE,
)


def trains_on_draws(m: Machine, loop: TrainingLoop, others: tuple[TrainingLoop, ...]) -> bool:
    """Whether nothing but draws goes into what a loop around a loader's trains."""
    site = loop.batch.site
    if not any(x.loaders and x.batch.site != site and x.batch.site.within(site) for x in others):
        return False
    forwards = [f for f in roles.forwards_of(m) if f.output in _outputs(m, loop)]
    given = [v for f in forwards for v in (*f.call.args, *f.call.kwargs.values())]
    drawn = bool(given) and all(_is_drawn(value, site) for value in given)
    return drawn and all(_is_known(value) for value in _behind(m, loop, forwards))


def _outputs(m: Machine, loop: TrainingLoop) -> set[Thing]:
    """The outputs of models that the backwards of a loop go through, but for those within it."""
    calls = roles.backwards(roles.calls_of(m))
    own = [c for c in calls if [x.site for x in c.where.loops()][:1] == [loop.batch.site]]
    deps = {d for c in own for v in (c.receiver, *c.args) for d in flat_deps(v or NOTHING)}
    return behind(deps)


def _is_drawn(value: Value, loop: Site) -> bool:
    """Whether a pass has drawn a value, or computed it from what it has drawn."""
    draws = value.dep(Kind.RANDOM)
    fresh = bool(draws) and all(draw.born.within(loop) for draw in draws)
    return fresh and not value.things and all(d.kind in OF_DRAWS for d in value.deps)


def _behind(m: Machine, loop: TrainingLoop, forwards: list[Forward]) -> Iterator[Value]:
    """The values of all names that arguments of the models may be computed from in a pass;
    NOTHING of one that is bound nowhere.
    """
    tree = m.tree(loop.batch.site.path)
    body = tree.statement(loop.batch.site)
    shown = {tree.expression(c.site) for c in roles.calls_of(m) if effect_of(c) and _in(c, loop)}
    nodes = [tree.expression(f.call.site) for f in forwards]
    given = [a for n in nodes if isinstance(n, ast.Call) for a in (*n.args, *n.keywords)]
    found = {name for node in given for name in loaded(node)}
    block = body.body if isinstance(body, (ast.For, ast.While)) else []
    pairs = list(flows(block, {node for node in shown if node is not None}))
    grown = -1
    while grown != len(found):
        grown = len(found)
        found |= {name for targets, sources in pairs if targets & found for name in sources}
    frame = loop.batch.frame
    yield from (frame.lookup(name) or NOTHING for name in found - vars(builtins).keys())


def _in(call: Call, loop: TrainingLoop) -> bool:
    return call.site.path == loop.batch.site.path


def _is_known(value: Value) -> bool:
    """Whether a value is no data: a setting, a model, a draw, a tensor made by its shape alone."""
    known = value.known or bool(value.things) or bool(value.deps)
    return known and all(t.kind in SAME or _is_library(t) or _is_shaped(t) for t in value.things)


def _is_library(thing: Thing) -> bool:
    return thing.kind is Kind.EXTERNAL and thing.name.partition(".")[0] in LIBRARIES


def _is_shaped(thing: Thing) -> bool:
    made = call_that_made(thing)
    if made is None or made.name.rpartition(".")[2] not in measures.CREATES:
        return False
    lengths = (v for v in made.args if not v.known)
    return all(not v.things or v.of(Kind.ARGUMENT) == v.things for v in lengths)
