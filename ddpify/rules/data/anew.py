"""Data that each epoch draws anew: where it is drawn, and what leads there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from ddpify.facts.details import call_that_made, loader_arguments
from ddpify.facts.events import Call
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.values import Thing
from ddpify.ranks.words import DRAWS, GENERATORS
from ddpify.rules.edits import statement_of
from ddpify.source import Site

_ALIKE = "ddpify.runtime.same_draws"
_STARTS = tuple(start for start, _ in DRAWS)


def drawn_anew(facts: Facts, loop: TrainingLoop) -> Iterator[tuple[Site, Site]]:
    """Draws of data sets, and of what loaders are made of, in an epoch; where it leads to them."""
    epoch = loop.epoch
    for loader in loop.loaders if epoch is not None else ():
        made = call_that_made(loader)
        if epoch is not None and made is not None:
            inside = any(one.site == epoch.site for one in made.where.loops())
            yield from _before(facts, made, loop, epoch) if inside else _asked(facts, loader, loop)


def _asked(facts: Facts, loader: Thing, loop: TrainingLoop) -> Iterator[tuple[Site, Site]]:
    """``loader.dataset.sample_negatives()`` between two epochs: draws in methods that it calls."""
    given = loader_arguments(loader).dataset
    data = {thing.born for thing in (given.things if given is not None else ())}
    for call in facts.calls:
        if not call.name.startswith(_STARTS):
            continue
        loops = {one.site for one in call.where.loops()}
        if loop.epoch is None or loop.epoch.site not in loops or loop.batch.site in loops:
            continue
        for frame in _callers(call):
            own = frame.self_thing is not None and frame.self_thing.born in data
            name = frame.function.name if frame.function is not None else ""
            if own and not name.startswith("__"):  # what a loader asks for is of its batches
                yield call.site, statement_of(facts, frame.stack[-1])
                break


def drawn_in_constructors(facts: Facts) -> Iterator[Site]:
    """Draws of data sets that an epoch makes, each in the ``__init__`` of one: the statements.

    ``DataLoader(Listed(names), …)`` where ``Listed`` shuffles the names, to evaluate, too.
    """
    epochs = {loop.epoch.site for loop in facts.training if loop.epoch is not None}
    loaders = [thing for loader in facts.loaders for thing in loader.things]
    given = [loader_arguments(thing).dataset for thing in loaders]
    data = {thing.born for value in given if value is not None for thing in value.things}
    for call in facts.calls:
        if not call.name.startswith(_STARTS) or _begins_a_stream(call.name):
            continue
        own = (f for f in _callers(call) if f.self_thing and f.self_thing.born in data)
        made = any(f.function is not None and f.function.name == "__init__" for f in own)
        if made and not epochs.isdisjoint(loop.site for loop in call.where.loops()):
            yield statement_of(facts, call.site)


def _begins_a_stream(name: str) -> bool:
    return name.endswith("seed") or name in GENERATORS


def _callers(call: Call) -> list[Frame]:
    """The frames that a call stands in, the outermost first."""
    frames = [call.where.frame]
    while (caller := frames[-1].caller) is not None:
        frames.append(caller)
    return frames[::-1]


def _before(
    facts: Facts, made: Call, loop: TrainingLoop, epoch: Loop
) -> Iterator[tuple[Site, Site]]:
    """Draws in the functions that make a loader, and before it in the epoch's round."""
    pairs = zip(made.where.stack, loop.batch.frame.stack, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    frame: Frame | None = made.where.frame
    while frame is not None:
        last, depth = frame is epoch.frame, len(frame.stack)
        tree = facts.trees[frame.module.source.path]
        scope = tree.statement(epoch.site) if last else getattr(frame.function, "node", None)
        if scope is None:
            return
        here = made.where.stack[depth] if len(made.where.stack) > depth else made.site
        for node in tree.nodes(scope):
            if isinstance(node, ast.Call) and _draws(frame, node):
                site = tree.site(node)
                if depth > shared:  # a function that only makes it
                    yield site, statement_of(facts, made.where.stack[shared])
                elif site < here:
                    yield site, statement_of(facts, site)
        if last:
            return
        frame = frame.caller


def is_alike(facts: Facts, place: Site) -> bool:
    """Whether a statement stands under ``with same_draws():``."""
    tree = facts.tree(place)
    node = tree.statement(place)
    above = tree.ancestors(node) if node is not None else ()
    opened = {tree.site(i.context_expr) for n in above if isinstance(n, ast.With) for i in n.items}
    return not opened.isdisjoint(call.site for call in facts.named(_ALIKE))


def stands_alone(facts: Facts, place: Site) -> bool:
    """Whether a statement holds no others, and so nothing that is trained."""
    return isinstance(facts.tree(place).statement(place), (ast.Assign, ast.Expr))


def _draws(frame: Frame, call: ast.Call) -> bool:
    """Whether a call draws from a process's stream: ``random.sample``, also in a lambda."""
    root, dot, rest = ast.unparse(call.func).partition(".")
    held = frame.module.globals.get(root)
    names = [f"{thing.name}{dot}{rest}" for thing in held.things] if held is not None else []
    seeds = any(map(_begins_a_stream, (rest, *names)))
    return not seeds and any(name.startswith(_STARTS) for name in names)
