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
from collections.abc import Iterable, Sequence

from ddpify.facts.events import Call, Forward
from ddpify.facts.model import Facts, Model, TrainingLoop
from ddpify.facts.roles import whole
from ddpify.facts.tree import Tree
from ddpify.facts.values import OF_ONE_RANK
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit, is_local
from ddpify.source import Site

MOST = 80  # characters of a condition that is said twice
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
    after = block[last + 1 : block.index(step)]  # type: ignore[arg-type]
    held = block[first : last + 1]
    once = first <= last and isinstance(block[last], (ast.Expr, ast.With))
    if not once or not _stays(asked, [*held, *after]) or any(map(_reads_gradients, after)):
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
    mine = {t for s in inside for t in (s.receiver.things if s.receiver is not None else ())}
    outside = [s for s in facts.steps if s not in inside and s.receiver is not None]
    if any(mine.intersection(s.receiver.things) for s in outside if s.receiver is not None):
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


def _reads_gradients(node: ast.AST) -> bool:
    """Whether a statement may look at gradients of which a part is averaged later."""
    words = (ast.unparse(n).lower() for n in ast.walk(node) if isinstance(n, ast.Attribute))
    return any("grad" in word for word in words)


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


def _stays(test: ast.expr, between: Iterable[ast.stmt]) -> bool:
    """Whether a condition says the same before some statements as after them."""
    if any(not isinstance(n, (*_NODES, *_OPERATORS)) and not _is_length(n) for n in ast.walk(test)):
        return False
    read = {ast.unparse(n) for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute))}
    return not any(name in read for one in between for name in _stored(one))


def _is_length(node: ast.AST) -> bool:
    """``len(loader)``"""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "len"


def _stored(node: ast.AST) -> set[str]:
    kinds = (ast.Name, ast.Attribute)
    found = (n for n in ast.walk(node) if isinstance(n, kinds) and isinstance(n.ctx, ast.Store))
    return {ast.unparse(n) for n in found}
