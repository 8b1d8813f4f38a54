"""Evaluations that each rank makes for itself, and no loop is seen to add up what decides.

Of what comes from no loader, ``score = evaluate(model, everything)``; or in a loop over one, with
numbers that go into an object which is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.facts.accumulators import accumulates
from ddpify.facts.events import Forward
from ddpify.facts.joining import flat_deps
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.scopes import Loop
from ddpify.facts.values import Kind, Thing
from ddpify.rules.metrics.deciding import left_behind
from ddpify.source import Site

KINDS = frozenset({"isinstance", "hasattr", "callable"})


def decided_outside(
    facts: Facts, loaders: set[Site]
) -> Iterator[tuple[Forward, Site, tuple[str, ...]]]:
    """Where such an evaluation is over, and the names of what it has computed then.

    Of the loops over loaders, those over ``loaders``, from whose batches is decided.
    """
    outputs = {f.output for f in facts.evaluation_forwards if not _over_batches(facts, f)}
    decisive = _asked(facts, outputs) if outputs else set()
    unseen = {end.loop.site for end in facts.replicated if not left_behind(facts, end)}
    for forward in facts.evaluation_forwards:
        found, loops = None, _loader_loops(forward)
        over = {t.born for loop in loops for t in loaders_in(loop.over)}
        if forward.output in decisive:
            found = _received(facts, forward, {forward.output}) or _left_by(facts, forward)
        elif {loop.site for loop in loops} <= unseen and over & loaders:
            found = _received(facts, forward, _made_in_loop(forward))
        if found is not None:
            yield forward, *found


def _loader_loops(forward: Forward) -> list[Loop]:
    return [loop for loop in forward.call.where.loops() if loaders_in(loop.over)]


def _made_in_loop(forward: Forward) -> set[Thing]:
    """What says of a number that it comes from this call, or from the batches of its loop."""
    batches = (thing for value in forward.call.args for thing in value.dep(Kind.BATCH))
    return {forward.output, *batches}


def _asked(facts: Facts, outputs: set[Thing]) -> set[Thing]:
    """Those that a condition looks at, whatever else it does."""
    tests = {guard.site for call in facts.calls for guard in call.where.conditions()}
    tests = {s for s in tests if not (_asks_for_first(facts, s) or _asks_for_kind(facts, s))}
    asked: set[Thing] = set()
    for site, value in facts.values.items():
        found = flat_deps(value) & outputs
        if found and any(site.within(test) for test in tests):
            asked |= found
    return asked


def _asks_for_kind(facts: Facts, test: Site) -> bool:
    """``isinstance(hidden, tuple)``: what a value is, not what it says."""
    node = facts.tree(test).expression(test)
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Call) and ast.unparse(node.func) in KINDS


def _asks_for_first(facts: Facts, test: Site) -> bool:
    """``rows = row if rows is None else torch.cat((rows, row))``: no number decides there."""
    tree = facts.tree(test)
    node = tree.expression(test)
    name = node.left if isinstance(node, ast.Compare) else None
    if not isinstance(name, ast.Name) or ast.unparse(node or name) != f"{name.id} is None":
        return False
    nodes = tree.nodes(tree.function(name))
    named = (n for n in nodes if isinstance(n, ast.Name) and n.id == name.id)
    return all(_adds_up(tree.parent(n), node) for n in named if isinstance(n.ctx, ast.Store))


def _adds_up(statement: ast.AST | None, test: ast.expr | None) -> bool:
    value = statement.value if isinstance(statement, ast.Assign) else None
    none = isinstance(value, ast.Constant) and value.value is None
    return none or (isinstance(value, ast.IfExp) and value.test is test)


def _over_batches(facts: Facts, forward: Forward) -> bool:
    """Whether an evaluation goes over a loader; in the midst of training, not training does."""
    loops = forward.call.where.loops()
    own = [loop for loop in loops if loop.site not in _training(facts)]
    return any(loaders_in(loop.over) for loop in own or loops)


def _training(facts: Facts) -> set[Site]:
    return {loop.site for one in facts.training for loop in one.backward.where.loops()}


def _received(
    facts: Facts, forward: Forward, made: set[Thing]
) -> tuple[Site, tuple[str, ...]] | None:
    """Where the function that calls the model has given what it computed, and its names."""
    inside = forward.call.where.stack
    found: tuple[Site, tuple[str, ...]] | None = None
    for bind in facts.binds:
        outer = bind.where.stack
        came = len(outer) < len(inside) and inside[: len(outer)] == outer
        here = came and inside[len(outer)].within(bind.where.statement)
        here = here and not bind.where.one_rank()
        if here and _is_place(bind.target) and not made.isdisjoint(flat_deps(bind.value)):
            if found is None:
                found = bind.where.statement, (bind.target,)
            elif found[0] == bind.where.statement and bind.target not in found[1]:
                found = found[0], (*found[1], bind.target)
    return found


def _is_place(target: str) -> bool:
    """Whether it can be bound anew as it is written: ``score``, ``self.score``."""
    return all(part.isidentifier() for part in target.split("."))


def _left_by(facts: Facts, forward: Forward) -> tuple[Site, tuple[str, ...]] | None:
    """Between two steps of training: the loop of an evaluation, and what that adds up."""
    loop = forward.call.where.loop
    if loop is None or loop.site in _training(facts) or forward.call.where.one_rank():
        return None
    tree = facts.tree(loop.site)
    node = tree.statement(loop.site)
    inside = (b for b in facts.binds if b.where.statement.within(loop.site))
    names = [b.target for b in inside if forward.output in flat_deps(b.value)]
    kept = [n for n in names if n.isidentifier() and node and accumulates(tree, node, n)]
    return (loop.site, tuple(dict.fromkeys(kept))) if kept else None
