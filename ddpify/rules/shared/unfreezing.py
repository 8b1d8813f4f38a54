"""Parts of a model that are frozen, or trained, as training goes on: the wrapper has to be told.

DistributedDataParallel asks ``requires_grad`` once, when it is made. What it is to average later it
has to know then, and may not wait for while it is frozen. ::

    with unfrozen(model):
        model = wrap_model(model, find_unused_parameters=True)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.events import Access, Call
from ddpify.facts.model import Facts, Model
from ddpify.facts.roles import whole
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.source import Site


def unfreezes(facts: Facts, model: Model) -> bool:
    """Whether some of a model's parameters, and not all at once, are frozen or trained later.

    That all are in turn is how GANs train, and needs nothing.
    """
    made = {whole(t).born for t in model.things}
    parts = {part.born for thing in model.things for part in _parts(whole(thing))} - made
    first = min((loop.backward.order for loop in facts.training), default=0)
    loops = {each.site for one in facts.training for each in (one.batch, one.epoch) if each}
    later = some = False
    for change in _changes(facts):
        owners, partial = _owners(facts, change)
        if not owners & (made | parts):
            continue
        goes_on = change.order > first or any(o.site in loops for o in change.where.loops())
        later |= goes_on
        some |= bool(owners & parts) or partial or _is_chosen(facts, change) or not goes_on
    return later and some


def _changes(facts: Facts) -> Iterator[Access | Call]:
    """What sets ``requires_grad``."""
    for one in facts.accesses:
        if one.attribute == "requires_grad" and one.stored:
            yield one
    yield from (call for call in facts.everywhere if call.name == ".requires_grad_")


def _parts(thing: Thing, depth: int = 4) -> Iterator[Thing]:
    """The modules that it keeps, which are called by names of their own as well."""
    for value in thing.attrs.values() if depth else ():
        for part in value.of(Kind.MODEL, Kind.WRAPPED):
            yield part
            yield from _parts(part, depth - 1)


def _owners(facts: Facts, change: Access | Call) -> tuple[set[Site], bool]:
    """Where the models were made that it is of, and whether it is of a part of one."""
    tree = facts.tree(change.where.statement)
    if isinstance(change, Call):
        node = tree.expression(change.receiver_site) if change.receiver_site else None
    else:
        loop = _around(tree, tree.statement(change.where.statement))
        node = _taken_from(loop.iter) if loop is not None else None
    known = change.receiver if isinstance(change, Call) else None
    inside = False
    while node is not None:
        value = known or facts.values.get(tree.site(node), NOTHING)
        models = value.of(Kind.MODEL, Kind.WRAPPED)
        if models:
            own = [inner for t in models for inner in (t.inner.things if t.inner else (t,))]
            return {whole(t).born for t in own}, inside or any(whole(t) is not t for t in own)
        node, inside, known = getattr(node, "value", None), True, None
    return set(), False


def _taken_from(over: ast.expr) -> ast.expr | None:
    """``net.body`` of ``for p in net.body.parameters()``, which may be counted or filtered."""
    for node in ast.walk(over):
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
            return node.value
    return None


def _is_chosen(facts: Facts, change: Access | Call) -> bool:
    """``p.requires_grad = "head" in name``, or under an ``if`` in the loop over parameters."""
    tree = facts.tree(change.where.statement)
    statement = tree.statement(change.where.statement)
    loop = _around(tree, statement)
    if isinstance(change, Call) or loop is None:
        return False
    value = getattr(statement, "value", None)
    return statement not in loop.body or not isinstance(value, (ast.Constant, ast.Name))


def _around(tree: Tree, statement: ast.stmt | None) -> ast.For | None:
    above = tree.ancestors(statement) if statement is not None else ()
    return next((one for one in above if isinstance(one, ast.For)), None)
