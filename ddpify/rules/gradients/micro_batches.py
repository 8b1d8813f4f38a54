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
from collections.abc import Iterable, Iterator, Sequence

from ddpify.facts.events import Call, Forward
from ddpify.facts.model import Facts, Model, TrainingLoop
from ddpify.facts.roles import whole
from ddpify.facts.tree import Tree
from ddpify.facts.values import OF_ONE_RANK, Kind, Thing
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, is_local
from ddpify.source import Site

MOST = 80  # characters of a condition that is said twice
# What has hold of a model, or of an optimizer, and leaves gradients as they are.
_HARMLESS = frozenset({".train", ".eval", ".zero_grad", ".parameters", ".scale", ".backward"})
_TRAINED = (Kind.MODEL, Kind.WRAPPED, Kind.PARAMETERS, Kind.OPTIMIZER)
_OPERATORS = (ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context)
_NODES = (ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare)


def saves_messages(facts: Facts, loop: TrainingLoop) -> tuple[Edit, ...]:
    """The edits after which the last micro-batch of a window alone is averaged; none if unsure."""
    models = _models(facts, loop)
    test = _condition(facts, loop)
    if test is None or not models or facts.whole_batches:
        return ()
    tree = facts.tree(test)
    asked = tree.expression(test)
    step = tree.parent(asked) if asked is not None else None
    block = _block(tree, step) if isinstance(step, ast.If) and step.test is asked else []
    first = _first(tree, block, [f.call for f in _forwards(facts, loop)])
    last = _first(tree, block, [loop.backward])
    if asked is None or first is None or last is None:
        return ()
    between, held = block[first:-1], block[first : last + 1]
    once = first <= last and isinstance(block[last], (ast.Expr, ast.With))
    if (
        not once
        or not _stays(facts, tree, asked, between)
        or _looked_at(facts, loop, held, block[-1])
    ):
        return ()
    names = _called(facts, loop, tree, held)
    if names is None or len(names) != len(models):
        return ()
    sync = facts.text(test)
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


def _condition(facts: Facts, loop: TrainingLoop) -> Site | None:
    """The one condition of all steps, beside those of the backward; it is alike on all ranks."""
    inside = [s for s in facts.steps if loop.batch in s.where.loops()]
    mine = {t for s in inside for t in _stepped(s)}
    if any(mine.intersection(_stepped(s)) for s in facts.steps if s not in inside):
        return None  # which steps what a window has left
    others = [one for one in facts.training if one.batch is loop.batch]
    held = {g.site for g in loop.backward.where.guards}
    tests = {g.site: g for s in inside for g in s.where.guards if g.site not in held}
    own = [{g.site for g in s.where.guards} - held for s in inside]
    if len(others) > 1 or len(tests) != 1 or not all(own):
        return None
    ((site, guard),) = tests.items()
    alike = not is_local(facts, guard.test) and not guard.test.dep(*OF_ONE_RANK)
    return site if guard.holds and alike and len(facts.text(site)) <= MOST else None


def _stepped(step: Call) -> Iterator[Thing]:
    """The optimizer, and the scaler that steps it: ``scaler.step(optimizer)``."""
    for value in (step.receiver, *step.args):
        yield from value.things if value is not None else ()


def _block(tree: Tree, step: ast.If) -> list[ast.stmt]:
    """The statements among which an ``if`` stands, which nothing follows that is else done."""
    body = getattr(tree.parent(step), "body", [])
    return body[: body.index(step) + 1] if step in body and not step.orelse else []


def _first(tree: Tree, block: Sequence[ast.stmt], calls: Sequence[Call]) -> int | None:
    """The first statement in which one of these calls is made; None where one is made elsewhere."""
    sites = [tree.site(one) for one in block]
    places = []
    for call in calls:
        way = (*call.where.stack, call.site)
        places.append([n for n, site in enumerate(sites) if any(s.within(site) for s in way)])
    return min(map(min, places)) if places and all(places) else None


def _looked_at(facts: Facts, loop: TrainingLoop, held: Sequence[ast.stmt], step: ast.stmt) -> bool:
    """Whether a round may look at gradients, or change them, that are averaged later.

    So may what is given a model, its parameters or an optimizer, and, after the backward, any
    function that the program defines. In the ``if`` of the step they are averaged.
    """
    tree = facts.tree(loop.batch.site)
    own = [tree.site(one) for one in held]
    forwards = {f.call.site for f in _forwards(facts, loop)}
    for call in facts.calls:
        inside = [s for s in (*call.where.stack, call.site) if s.within(loop.batch.site)]
        stepping = any(s.within(tree.site(step)) for s in inside)
        if not inside or stepping or call.site in forwards or call.name in _HARMLESS:
            continue
        given = [v for v in (call.receiver, *call.args, *call.kwargs.values()) if v is not None]
        before = any(s.within(one) for s in inside for one in own)
        if any(v.of(*_TRAINED) for v in given) or (call.target is not None and not before):
            return True
    nodes = tree.nodes(tree.statement(loop.batch.site))
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in nodes)


def _called(
    facts: Facts, loop: TrainingLoop, tree: Tree, held: Sequence[ast.stmt]
) -> list[str] | None:
    """What the models are called by in these statements; None where a function calls one."""
    names: dict[str, None] = {}
    for forward in _forwards(facts, loop):
        node = tree.expression(forward.call.site)
        if forward.call.site.path != tree.source.path or not isinstance(node, ast.Call):
            return None
        if not any(forward.call.site.within(tree.site(one)) for one in held):
            return None
        names[ast.unparse(node.func)] = None
    bound = {n for one in held for n in _stored(one)}
    plain = all(name.replace(".", "_").isidentifier() and name not in bound for name in names)
    return list(names) if plain else None


def _stays(facts: Facts, tree: Tree, test: ast.expr, between: Iterable[ast.stmt]) -> bool:
    """Whether a condition says the same before some statements as after them.

    What it reads of an object may be set by whoever has it; only ``__init__`` comes before.
    """
    if any(not isinstance(n, (*_NODES, *_OPERATORS)) and not _is_length(n) for n in ast.walk(test)):
        return False
    nodes = [(one, n) for one in facts.trees.values() for n in one.nodes()]
    kinds = (ast.Global, ast.Nonlocal)
    shared = {name for _, n in nodes if isinstance(n, kinds) for name in n.names}
    fields = {name for one, n in nodes for name in _fields_set(one, n)}
    read = [n for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute))]
    names = {ast.unparse(n) for n in read}
    if names & shared or fields & {n.attr for n in read if isinstance(n, ast.Attribute)}:
        return False
    return not any(name in names for one in between for name in _stored(one))


def _fields_set(tree: Tree, node: ast.AST) -> Iterator[str]:
    """``count`` of ``self.count += 1``, but in ``__init__``."""
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    if stored and getattr(tree.function(node), "name", "") != "__init__":
        yield node.attr  # type: ignore[attr-defined]


def _is_length(node: ast.AST) -> bool:
    """``len(loader)``"""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "len"


def _stored(node: ast.AST) -> set[str]:
    kinds = (ast.Name, ast.Attribute)
    found = (n for n in ast.walk(node) if isinstance(n, kinds) and isinstance(n.ctx, ast.Store))
    return {ast.unparse(n) for n in found}
