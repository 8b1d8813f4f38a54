"""Backwards through a graph that was kept: what they add is averaged right after them.

Measured with Gloo on two ranks, torch 2.13, also with find_unused_parameters, static_graph and
gradient_as_bucket_view: DDP averages all of `.grad` in the first backward after a forward, be that
of an older graph or of another forward. The next one adds what this rank has, without an error. So
the mean over the ranks of what `.grad` holds then is exact, whatever was averaged in it before;
taken right after the backward, clipping, scalers and steps find what one process has. DDP raises
where the first backward came to a part of the model only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpify.facts.events import Call, Forward
from ddpify.facts.fresh import method_of
from ddpify.facts.gradients import behind
from ddpify.facts.model import Facts, Model
from ddpify.facts.roles import stepped, whole
from ddpify.facts.tree import Tree
from ddpify.facts.values import Thing, Value
from ddpify.rules.edits import is_local
from ddpify.source import Site

_DISPLAYS = (ast.Tuple, ast.List, ast.Dict, ast.ListComp, ast.DictComp)
_OF_TENSORS = "data shape device dtype".split()
AVERAGE = "ddpify.runtime.average_gradients"


@dataclass(frozen=True, eq=False)
class Again:
    """A backward ``second`` through the graph that ``first`` kept.

    ``stale`` are the forwards of it whose model was called no more since: what it adds to their
    gradients stays this rank's. There is none where it is not known what it goes back through.
    """

    first: Call
    second: Call
    stale: tuple[Forward, ...]

    def of(self, model: Model) -> list[Forward]:
        """The stale forwards of a model."""
        return [f for f in self.stale if whole(f.model).born in _born(model.things)]

    def is_between(self, call: Call) -> bool:
        """Whether a call comes between the two."""
        return self.first.order < call.order < self.second.order


def again(facts: Facts) -> Iterator[Again]:
    """Backwards that follow one that keeps its graph, to which some model brings no forward since.

    A forward makes the wrapper ready to average once more, all that the next backward adds.
    """
    for site in dict.fromkeys(loop.batch.site for loop in facts.training):
        calls = _first_of_each((c for c in facts.calls if c.name.endswith(".backward")), site)
        forwards = _first_of_each((f.call for f in facts.training_forwards), site)
        for first, second in zip(calls, (*calls[1:], *calls[:1]), strict=True):
            retained = first.arg(1, "retain_graph")
            if retained is None or not (retained.known and retained.const):
                continue
            through = _through(facts, second)
            since = {c.site for c in forwards if _between(first.order, c.order, second.order)}
            renewed = {f.model for f in through if f.call.site in since}
            stale = tuple(f for f in through if f.model not in renewed)
            if stale or not through:
                yield Again(first, second, stale)


def _through(facts: Facts, backward: Call) -> list[Forward]:
    """The forwards that a backward goes back through."""
    values = [v for v in (backward.receiver, *backward.args) if v is not None]
    outputs = {output for value in values for output in behind(value.deps)}
    return [f for f in facts.training_forwards if f.output in outputs]


def _first_of_each(calls: Iterable[Call], loop: Site) -> list[Call]:
    """The calls in a round of a loop, of which two are read."""
    inside = [c for c in calls if loop in {around.site for around in c.where.loops()}]
    first = {(c.site, c.where.stack): c for c in reversed(inside) if not c.where.no_grad}
    return sorted(first.values(), key=lambda call: call.order)


def _between(first: int, order: int, second: int) -> bool:
    """Whether something comes between two calls of a round, or from one round to the next."""
    return first < order < second if first < second else order > first or order < second


def stepped_between(facts: Facts, one: Again) -> Call | None:
    """A step that changes weights which the kept graph has to go back through."""
    models = [model for model in facts.models if one.of(model)]
    steps = [s for s in facts.steps if one.is_between(s)]
    return next((s for s in steps if any(_steps(s, model) for model in models)), None)


def names(facts: Facts, one: Again) -> list[str] | None:
    """The models whose gradients are to be averaged after the second; None: it is not certain."""
    models = [model for model in facts.models if one.of(model)]
    stale = [forward for model in models for forward in one.of(model)]
    kept = bool(stale) and set(stale) <= set(_through(facts, one.first))
    if not kept or not _is_plain(facts, one) or not all(_is_one(facts, f) for f in stale):
        return None
    uses = [_next_use(facts, one, model) for model in models]
    if None in uses:
        return None
    after = one.second.order
    done = [use is not None and use.name != ".step" and use.order > after for use in uses]
    found = [_name(facts, one, m) for m, is_done in zip(models, done, strict=True) if not is_done]
    return list(dict.fromkeys(found)) if all(found) else None


def _is_plain(facts: Facts, one: Again) -> bool:
    """Whether the second is a statement after the first, to which all ranks come."""
    tree, where = facts.tree(one.second.site), one.second.where
    node = tree.statement(one.second.site)
    alone = isinstance(node, ast.Expr) and tree.site(node.value) == one.second.site
    follows = bool(one.stale) and one.first.order < one.second.order
    together = _is_sure(one.second, one.first) and where.loop is one.first.where.loop
    apart = any(is_local(facts, guard.test) for guard in where.conditions())
    return alone and follows and together and not apart and not _is_tried(facts, one.second)


def _is_tried(facts: Facts, call: Call) -> bool:
    """Whether a rank that fails there may go on with the loop."""
    tree = facts.tree(call.site)
    node = tree.statement(call.site)
    for above in tree.ancestors(node) if node is not None else ():
        if isinstance(above, (ast.For, ast.While, ast.FunctionDef)):
            return False
        if isinstance(above, ast.Try):
            return True
    return False


def _next_use(facts: Facts, one: Again, model: Model) -> Call | None:
    """What surely comes next to the gradients of a model: averaged, stepped with, or cleared."""
    loop = one.second.where.loop
    averages = (c for c in facts.named(AVERAGE) if _is_for(c.args[:1], model.things))
    clears = (c for c in facts.named(".zero_grad") if _clears(c, model))
    steps = (s for s in facts.steps if _steps(s, model))
    uses = _first_of_each((*averages, *clears, *steps), loop.site) if loop is not None else []
    later = [u for u in uses if u.order > one.second.order] or uses
    return later[0] if later and _is_sure(later[0], one.second) else None


def _steps(call: Call, model: Model) -> bool:
    return not _born(stepped(call)).isdisjoint(_born(model.optimizers))


def _clears(call: Call, model: Model) -> bool:
    """Whether a call clears all gradients of a model that an optimizer steps with."""
    alone = len(model.optimizers) == 1
    return _is_for((call.receiver,), (*model.things, *(model.optimizers if alone else ())))


def _is_for(values: Iterable[Value | None], wanted: tuple[Thing, ...]) -> bool:
    things = [thing for value in values if value is not None for thing in value.things]
    return bool(things) and {whole(thing).born for thing in things} <= _born(wanted)


def _born(things: Iterable[Thing]) -> set[Site]:
    """Where things are made: the same in every reading of the program."""
    return {thing.born for thing in things}


def _is_sure(call: Call, other: Call) -> bool:
    """Whether a call is made wherever the other one is."""
    held = {(guard.site, guard.holds) for guard in other.where.guards}
    same = call.where.function is other.where.function and call.where.stack == other.where.stack
    return same and all((guard.site, guard.holds) in held for guard in call.where.guards)


def _is_one(facts: Facts, forward: Forward) -> bool:
    """Whether a forward gives one tensor, so that whatever goes back through it comes to all of the
    model: DDP raises where the first backward came to one head, and the second to another."""
    info = method_of(whole(forward.model), "forward")
    nodes = list(ast.walk(info.node)) if info is not None else []
    stores = [n for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, _DISPLAYS)]
    lists = {ast.unparse(target) for store in stores for target in store.targets}
    returned = [n.value for n in nodes if isinstance(n, ast.Return) and n.value is not None]
    if any(isinstance(v, _DISPLAYS) or ast.unparse(v) in lists for v in returned):
        return False
    tree = facts.tree(forward.call.site)
    node = tree.expression(forward.call.site)
    around = tree.parent(node) if node is not None else None
    if isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Name):
        reads = tree.reads(tree.function(around), around.targets[0].id)
        return not any(_takes_apart(tree, read) for read in reads)
    return node is not None and not _takes_apart(tree, node)


def _takes_apart(tree: Tree, node: ast.AST) -> bool:
    """Whether one of several outputs may be taken from what stands there."""
    around = tree.parent(node)
    if isinstance(around, ast.Assign):
        return any(isinstance(target, (ast.Tuple, ast.List)) for target in around.targets)
    if isinstance(around, ast.Attribute):
        return tree.attribute_of(node) not in ("", *_OF_TENSORS)
    return isinstance(around, (ast.Subscript, ast.For, ast.comprehension, ast.Starred))


def _name(facts: Facts, one: Again, model: Model) -> str:
    """What the model is called where the second is; "" where it has no one name there."""
    found = set()
    for forward in one.of(model):
        tree, where = facts.tree(forward.call.site), forward.call.where
        node = tree.expression(forward.call.owner_site)
        same = where.function is one.second.where.function and where.loop is one.second.where.loop
        found.add(ast.unparse(node) if same and node is not None and _is_name(node) else "")
    return "" if len(found) > 1 or found & _bound(facts, one.second) else found.pop()


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def _bound(facts: Facts, call: Call) -> set[str]:
    """The names that are others from round to round of the loop around a call."""
    loop = call.where.loop
    tree = facts.tree(call.site)
    node = tree.statement(loop.site) if loop is not None else None
    inside = tree.nodes(node) if node is not None else ()
    names = (n for n in inside if isinstance(n, (ast.Name, ast.Attribute)))
    return {ast.unparse(n) for n in names if isinstance(n.ctx, ast.Store)}
